"""The settings of a model: read from its `config.json`, and refused where they are not ours."""

import json
import shutil
from pathlib import Path

import pytest

from jaxgeom.models import EncoderConfig, ModelError, read_config

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def bert(tmp_path) -> Path:
    """A copy of the small BERT's folder, to be spoilt."""
    return Path(shutil.copytree(GOLDEN / "bert", tmp_path / "bert"))


@pytest.fixture
def roberta(tmp_path) -> Path:
    return Path(shutil.copytree(GOLDEN / "roberta", tmp_path / "roberta"))


def change_config(folder: Path, **fields) -> None:
    """Set fields of a folder's config; `...` takes one out."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))


def test_config_is_read_from_the_file():
    config = read_config(GOLDEN / "roberta")
    assert (config.model_type, config.hidden_size, config.layer_norm_eps) == ("roberta", 32, 1e-3)
    assert (config.first_position, config.max_length) == (2, 128)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gpt2"}, "model_type must be 'bert' or 'roberta', got 'gpt2'"),
        ({"model_type": ...}, "model_type must be 'bert' or 'roberta', got None"),
        ({"hidden_size": ..., "hidden_act": ...}, "missing hidden_size, hidden_act"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
        ({"is_decoder": True}, "is_decoder must be False, got True"),
        ({"add_cross_attention": True}, "add_cross_attention must be False"),
        ({"hidden_act": "quick_gelu"}, "hidden_act must be one of 'gelu', .*, got 'quick_gelu'"),
        ({"hidden_size": "32"}, "hidden_size must be of type int, got '32'"),
        ({"hidden_size": 32.0}, r"hidden_size must be of type int, got 32\.0"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be of type int, got True"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1, got 0"),
        ({"pad_token_id": None}, "pad_token_id must be of type int, got None"),
        ({"pad_token_id": 250}, "pad_token_id must be below vocab_size = 250, got 250"),
        ({"num_attention_heads": 5}, "multiple of num_attention_heads, got 32 and 5"),
        ({"hidden_dropout_prob": 1.0}, r"hidden_dropout_prob must be in \[0, 1\), got 1\.0"),
        ({"layer_norm_eps": 0}, r"layer_norm_eps must be in \(0, 1\), got 0\.0"),
    ],
)
def test_a_wrong_config(bert, fields, message):
    change_config(bert, **fields)
    with pytest.raises(ModelError, match=message) as raised:
        read_config(bert)
    assert str(raised.value).startswith(str(bert / "config.json"))


def test_no_positions_behind_the_padding(roberta):
    change_config(roberta, max_position_embeddings=2)
    with pytest.raises(ModelError, match=r"must be above pad_token_id \+ 1 = 2, got 2"):
        read_config(roberta)


def test_what_googles_files_leave_out(bert, roberta):
    change_config(bert, layer_norm_eps=..., pad_token_id=..., is_decoder=...)
    assert read_config(bert) == read_config(GOLDEN / "bert")
    change_config(roberta, layer_norm_eps=..., pad_token_id=...)
    with pytest.raises(ModelError, match="missing layer_norm_eps, pad_token_id"):
        read_config(roberta)


def test_no_field_has_a_default():
    with pytest.raises(TypeError, match="missing"):
        EncoderConfig()


def test_a_probability_may_be_a_whole_number(bert):
    change_config(bert, hidden_dropout_prob=0)
    assert read_config(bert).hidden_dropout_prob == 0.0


@pytest.mark.parametrize("text", ["{", "\xff", "[]"])
def test_a_config_that_is_no_json_object(bert, text):
    (bert / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"config\.json must (be a JSON file|hold a JSON object)"):
        read_config(bert)


def test_no_config(bert):
    (bert / "config.json").unlink()
    with pytest.raises(ModelError, match=r"must be a model folder: there is no config\.json in it"):
        read_config(bert)
    with pytest.raises(ModelError, match="must be a model folder: there is no such folder"):
        read_config(bert / "nowhere")
