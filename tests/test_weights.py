"""Reading, drawing and writing weights, and checkpoints that are refused."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from jaxgeom.models import (
    Encoder,
    ModelError,
    load_encoder,
    random_encoder,
    read_config,
    save_encoder,
)
from jaxgeom.models import weights as module

GOLDEN = Path(__file__).parent / "golden"
WORDS = "embeddings.word_embeddings.weight"
QUERY = "encoder.layer.1.attention.self.query.weight"


@pytest.fixture
def bert(tmp_path) -> Path:
    """A copy of the small BERT's folder, to be spoilt."""
    return Path(shutil.copytree(GOLDEN / "bert", tmp_path / "bert"))


@pytest.fixture
def roberta(tmp_path) -> Path:
    return Path(shutil.copytree(GOLDEN / "roberta", tmp_path / "roberta"))


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def rewrite(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    save_file(contiguous, folder / "model.safetensors", {"format": "pt"})


def change_config(folder: Path, **fields) -> None:
    """Set fields of a folder's config; `...` takes one out."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))


def assert_same(one, other) -> None:
    """Two encoders, bit by bit."""
    assert nnx.graphdef(one) == nnx.graphdef(other)
    pairs = zip(*(nnx.to_flat_state(nnx.state(e, nnx.Param)) for e in (one, other)), strict=True)
    for (path, a), (other_path, b) in pairs:
        assert path == other_path
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a[...], b[...], err_msg=str(path))


def test_each_weight_comes_to_its_place():
    stored, encoder = tensors_of(GOLDEN / "bert"), load_encoder(GOLDEN / "bert")
    np.testing.assert_array_equal(encoder.embeddings.word_embeddings.embedding, stored[WORDS])
    layer, prefix = encoder.layers[2], "encoder.layer.2"
    key = stored[f"{prefix}.attention.self.key.weight"]
    np.testing.assert_array_equal(layer.query_key_value.kernel[...][:, 32:64], key.T)
    bias = stored[f"{prefix}.attention.self.value.bias"]
    np.testing.assert_array_equal(layer.query_key_value.bias[...][64:], bias)
    norm = stored[f"{prefix}.output.LayerNorm.weight"]
    np.testing.assert_array_equal(layer.output_norm.scale, norm)


def with_prefix(tensors):
    return {f"bert.{name}": tensor for name, tensor in tensors.items()}


def with_old_names(tensors):
    def spell(name):
        return name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")

    return {spell(name): tensor for name, tensor in tensors.items()}


def with_heads(tensors):
    extra = {
        "cls.predictions.bias": np.zeros(250, np.float32),
        "cls.seq_relationship.weight": np.zeros((2, 32), np.float32),
        "bert.embeddings.position_ids": np.arange(130)[None],
    }
    return with_prefix(tensors) | extra


def without_pooler(tensors):
    return {name: tensor for name, tensor in tensors.items() if "pooler" not in name}


@pytest.mark.parametrize("layout", [with_prefix, with_old_names, with_heads, without_pooler])
def test_layouts_of_a_checkpoint(bert, layout):
    expected = load_encoder(bert)
    names = set(tensors_of(bert))
    rewrite(bert, layout(tensors_of(bert)))
    assert set(tensors_of(bert)) != names
    assert_same(load_encoder(bert), expected)


def shard(folder: Path) -> dict[str, str]:
    """Split a folder's weights into two files and an index; return the index's map."""
    tensors = tensors_of(folder)
    (folder / "model.safetensors").unlink()
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(tensors)}
    for file in set(files.values()):
        save_file({n: t for n, t in tensors.items() if files[n] == file}, folder / file)
    index = {"metadata": {"total_size": 0}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return files


def test_shards(bert):
    expected = load_encoder(bert)
    shard(bert)
    assert_same(load_encoder(bert), expected)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_other_precisions_are_read_as_float32(bert, dtype):
    tensors = {name: tensor.astype(dtype) for name, tensor in tensors_of(bert).items()}
    rewrite(bert, tensors)
    words = load_encoder(bert).embeddings.word_embeddings.embedding
    assert words.dtype == jnp.float32
    np.testing.assert_array_equal(words, tensors[WORDS].astype(np.float32))


def test_the_compute_dtype_leaves_the_weights_alone():
    encoder = load_encoder(GOLDEN / "bert", dtype=jnp.bfloat16)
    assert encoder.layers[0].output.kernel.dtype == jnp.float32
    assert encoder.layers[0].output.dtype == jnp.bfloat16


def test_everything_wrong_is_named_at_once(bert):
    tensors = tensors_of(bert)
    del tensors["encoder.layer.0.output.dense.bias"]
    del tensors[QUERY]
    tensors["encoder.layer.3.output.dense.bias"] = np.zeros(32, np.float32)
    tensors["classifier.weight"] = np.zeros((2, 32), np.float32)
    tensors[WORDS] = tensors[WORDS][:-1]
    tensors["encoder.layer.2.output.dense.weight"] = tensors[
        "encoder.layer.2.output.dense.weight"
    ].T
    tensors["embeddings.LayerNorm.bias"] = np.zeros(32, np.int32)
    rewrite(bert, tensors)
    with pytest.raises(ModelError) as raised:
        load_encoder(bert)
    first, *lines = str(raised.value).splitlines()
    assert first == f"the weights in {bert} must be those that its config.json describes, but:"
    assert sorted(line.strip() for line in lines) == [
        f"mis-shaped: {WORDS} must be (250, 32), got (249, 32)",
        "mis-shaped: encoder.layer.2.output.dense.weight must be (32, 64), got (64, 32)",
        "missing: encoder.layer.0.output.dense.bias",
        f"missing: {QUERY}",
        "mistyped: embeddings.LayerNorm.bias must be floating, got int32",
        "unexpected: classifier.weight",
        "unexpected: encoder.layer.3.output.dense.bias",
    ]


def test_a_name_given_twice(bert):
    tensors = tensors_of(bert)
    rewrite(bert, tensors | {f"bert.{WORDS}": tensors[WORDS]})
    with pytest.raises(ModelError, match=f"holds {WORDS} a second time"):
        load_encoder(bert)


def test_other_models_prefix_is_unexpected(bert):
    rewrite(bert, {f"roberta.{name}": tensor for name, tensor in tensors_of(bert).items()})
    with pytest.raises(ModelError, match=f"unexpected: roberta.{WORDS}"):
        load_encoder(bert)


def test_a_truncated_file(bert):
    path = bert / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model\.safetensors must be a safetensors file"):
        load_encoder(bert)


def test_only_a_pickle(bert):
    (bert / "model.safetensors").rename(bert / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"got only pytorch_model\.bin.*save_pretrained"):
        load_encoder(bert)


def test_no_weights(bert):
    (bert / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"must hold model\.safetensors or .*, got neither"):
        load_encoder(bert)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        (None, "must have a weight_map"),
        ({}, "must have a weight_map"),
        ({WORDS: "../elsewhere.safetensors"}, "must name files beside it, got ../elsewhere"),
        ({WORDS: "model-3.safetensors"}, "names files that are not there: model-3.safetensors"),
    ],
)
def test_a_broken_index(bert, weight_map, message):
    shard(bert)
    index = bert / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ModelError, match=message):
        load_encoder(bert)


def test_a_shard_too_few(bert):
    files = shard(bert)
    first = {name: file for name, file in files.items() if "00001" in file}
    (bert / "model.safetensors.index.json").write_text(json.dumps({"weight_map": first}))
    with pytest.raises(ModelError, match="missing: ") as raised:
        load_encoder(bert)
    absent = [n for n in files if n not in first and not n.startswith("pooler")]
    assert str(raised.value).count("missing: ") == len(absent)


def test_random_weights_are_hugging_faces(roberta):
    change_config(roberta, vocab_size=2000, initializer_range=0.05)
    encoder = random_encoder(read_config(roberta), key=jax.random.key(3))
    drawn = []
    for path, param in nnx.to_flat_state(nnx.state(encoder, nnx.Param)):
        value = np.asarray(param[...])
        if path[-1] == "bias":
            assert (value == 0).all(), path
        elif path[-1] == "scale":
            assert (value == 1).all(), path
        else:
            drawn.append(value.ravel())
    for table in (encoder.embeddings.word_embeddings, encoder.embeddings.position_embeddings):
        assert (table.embedding[...][1] == 0).all()  # the padding id
        assert (table.embedding[...][2:] != 0).all()
    values = np.concatenate(drawn)[np.concatenate(drawn) != 0]
    n = values.size
    assert abs(values.mean()) < 5 * 0.05 / np.sqrt(n)  # five standard errors
    assert abs(values.std() - 0.05) < 5 * 0.05 / np.sqrt(2 * n)
    assert np.abs(values).max() > 4 * 0.05  # not truncated


def test_bert_positions_have_no_padding_row():
    encoder = random_encoder(read_config(GOLDEN / "bert"), key=jax.random.key(0))
    assert (encoder.embeddings.position_embeddings.embedding[...] != 0).all()
    assert (encoder.embeddings.word_embeddings.embedding[...][0] == 0).all()


def test_random_weights_depend_on_the_key_alone():
    config = read_config(GOLDEN / "bert")
    one, same = (random_encoder(config, key=jax.random.key(7)) for _ in range(2))
    assert_same(one, same)
    half = random_encoder(config, key=jax.random.key(7), dtype=jnp.bfloat16)
    np.testing.assert_array_equal(one.layers[2].output.kernel, half.layers[2].output.kernel)
    other = random_encoder(config, key=jax.random.key(8))
    assert (one.layers[2].output.kernel[...] != other.layers[2].output.kernel[...]).all()
    assert (one.layers[1].output.kernel[...] != one.layers[2].output.kernel[...]).all()


@pytest.mark.parametrize("name", ["bert", "roberta"])
@pytest.mark.parametrize("with_source", [True, False])
def test_round_trip(name, with_source, tmp_path):
    encoder = load_encoder(GOLDEN / name)
    save_encoder(encoder, tmp_path / "a/b", source=GOLDEN / name if with_source else None)
    assert_same(load_encoder(tmp_path / "a/b"), encoder)
    assert sorted(p.name for p in (tmp_path / "a/b").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_saved_tensors_are_the_sources(tmp_path):
    """Names, values and bytes; the pooler, which the encoder does not hold, among them."""
    save_encoder(load_encoder(GOLDEN / "bert"), tmp_path, source=GOLDEN / "bert")
    saved, stored = tensors_of(tmp_path), tensors_of(GOLDEN / "bert")
    assert saved.keys() == stored.keys()
    assert "pooler.dense.weight" in saved
    for name, tensor in saved.items():
        np.testing.assert_array_equal(tensor, stored[name], err_msg=name)
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}


def test_saved_names_have_no_prefix_and_no_head(tmp_path):
    save_encoder(load_encoder(GOLDEN / "roberta"), tmp_path, source=GOLDEN / "roberta")
    stored = {
        n.removeprefix("roberta.") for n in tensors_of(GOLDEN / "roberta") if "lm_head" not in n
    }
    assert tensors_of(tmp_path).keys() == stored


def test_new_weights_go_with_the_old_pooler(tmp_path):
    source = GOLDEN / "bert"
    encoder = random_encoder(read_config(source), key=jax.random.key(0))
    save_encoder(encoder, tmp_path, source=source)
    assert_same(load_encoder(tmp_path), encoder)
    saved, stored = tensors_of(tmp_path), tensors_of(source)
    np.testing.assert_array_equal(saved["pooler.dense.weight"], stored["pooler.dense.weight"])
    assert (saved[QUERY] != stored[QUERY]).all()


def test_a_pooler_with_a_prefix_and_in_another_precision_is_carried_as_it_is(bert, tmp_path):
    rewrite(bert, {f"bert.{n}": t.astype(np.float16) for n, t in tensors_of(bert).items()})
    save_encoder(load_encoder(bert), tmp_path / "out", source=bert)
    saved = tensors_of(tmp_path / "out")
    assert saved["pooler.dense.bias"].dtype == np.float16
    np.testing.assert_array_equal(
        saved["pooler.dense.bias"], tensors_of(bert)["bert.pooler.dense.bias"]
    )


def test_the_sources_config_is_carried(roberta, tmp_path):
    change_config(roberta, torch_dtype="float16", my_note={"kept": [1, 2]}, id2label={"0": "no"})
    save_encoder(load_encoder(roberta), tmp_path / "out", source=roberta)
    saved = json.loads((tmp_path / "out/config.json").read_text())
    source = json.loads((roberta / "config.json").read_text())
    del source["torch_dtype"]
    changed = {"architectures": ["RobertaModel"], "dtype": "float32"}
    assert saved == source | changed


def test_a_config_without_source_is_complete(tmp_path):
    save_encoder(load_encoder(GOLDEN / "bert"), tmp_path)
    assert read_config(tmp_path) == read_config(GOLDEN / "bert")
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertModel"]


def test_a_folder_can_be_saved_over_itself(bert):
    encoder = random_encoder(read_config(bert), key=jax.random.key(1))
    pooler = tensors_of(bert)["pooler.dense.weight"]
    save_encoder(encoder, bert, source=bert)
    assert_same(load_encoder(bert), encoder)
    np.testing.assert_array_equal(tensors_of(bert)["pooler.dense.weight"], pooler)


def test_another_models_source_is_refused(bert, tmp_path):
    change_config(bert, layer_norm_eps=1e-5)
    encoder = load_encoder(GOLDEN / "bert")
    with pytest.raises(ModelError, match="source must be the folder that the encoder comes from"):
        save_encoder(encoder, tmp_path / "out", source=bert)
    assert not (tmp_path / "out").exists()


def test_whoever_may_read_the_config_may_read_the_weights(bert, tmp_path) -> None:
    save_encoder(load_encoder(bert), tmp_path / "saved")
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "saved").iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]


def test_nothing_half_written(bert, monkeypatch):
    """A full disk while writing: the old file stays, and nothing lies about."""

    def fail(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise OSError("no space left on device")

    before = tensors_of(bert)
    monkeypatch.setattr(module, "save_file", fail)
    encoder = random_encoder(read_config(bert), key=jax.random.key(0))
    names = sorted(path.name for path in bert.iterdir())
    with pytest.raises(OSError, match="no space left"):
        save_encoder(encoder, bert, source=bert)
    assert sorted(path.name for path in bert.iterdir()) == names
    np.testing.assert_array_equal(tensors_of(bert)[QUERY], before[QUERY])


def test_parameters_in_bfloat16_are_saved_as_float32(tmp_path):
    config = read_config(GOLDEN / "bert")
    encoder = Encoder(config, rngs=nnx.Rngs(0), param_dtype=jnp.bfloat16)
    save_encoder(encoder, tmp_path)
    words = encoder.embeddings.word_embeddings.embedding[...]
    assert words.dtype == jnp.bfloat16
    np.testing.assert_array_equal(tensors_of(tmp_path)[WORDS], words.astype(jnp.float32))


def test_saved_folder_in_transformers(tmp_path):
    """Hugging Face's class finds all its weights there and no others, and computes the same."""
    torch = pytest.importorskip("torch", reason="torch is no dependency of the project")
    import transformers

    encoder = random_encoder(read_config(GOLDEN / "bert"), key=jax.random.key(5))
    save_encoder(encoder, tmp_path, source=GOLDEN / "bert")
    model, report = transformers.AutoModel.from_pretrained(str(tmp_path), output_loading_info=True)
    assert not any(report.values()), report
    ids = np.array([[2, 17, 99, 30, 3]])
    with torch.no_grad():
        expected = model.eval()(torch.tensor(ids)).last_hidden_state.numpy()
    ours = encoder(ids, np.ones_like(ids), np.arange(5)[None])[-1]
    np.testing.assert_allclose(ours, expected, atol=2e-5)
