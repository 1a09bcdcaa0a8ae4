"""Masked language models: what is hidden, what the loss counts, the head, and its files."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from tiny_corpus import RECIPE

from jaxgeom.models import ModelError, Rows, load_encoder, pack
from jaxgeom.models.masked_lm import MaskedLM, load_masked_lm, save_masked_lm
from jaxgeom.training.masking import Masked, Vocabulary, mask_tokens
from jaxgeom.training.mlm import MLMConfig, find_masked

VOCABULARY = Vocabulary(size=300, n_special=5, mask_id=4)
SHARE = 0.15


def random_rows(n_rows: int, length: int, seed: int = 0) -> Rows:
    """Rows of several sentences between special tokens, some padding at their ends."""
    rng = np.random.default_rng(seed)
    ids = []
    for _ in range(n_rows * length // 12):
        inner = rng.integers(VOCABULARY.n_special, VOCABULARY.size, rng.integers(2, 10))
        ids.append(np.array([2, *inner, 3], np.int32))
    packing = pack([len(x) for x in ids], length)
    rows = packing.fill(ids)
    return Rows(*(part[:n_rows] for part in rows))


@pytest.fixture(scope="module")
def large() -> tuple[np.ndarray, Masked]:
    """A batch of many tokens, before and after."""
    ids = random_rows(256, 64).input_ids
    return ids, jax.device_get(
        jax.jit(mask_tokens, static_argnames=("vocabulary", "share"))(
            jax.random.key(0), ids, VOCABULARY, share=SHARE
        )
    )


def test_exactly_the_share_is_chosen_and_special_tokens_never(large: Any) -> None:
    ids, masked = large
    n_ordinary = (ids >= VOCABULARY.n_special).sum()
    assert masked.weights.sum() == np.round(SHARE * n_ordinary)
    chosen = masked.places[masked.weights > 0]
    assert len(set(chosen.tolist())) == len(chosen)
    np.testing.assert_array_equal(masked.targets, ids.reshape(-1)[masked.places])
    assert masked.targets[masked.weights > 0].min() >= VOCABULARY.n_special


def test_what_is_not_chosen_stays(large: Any) -> None:
    ids, masked = large
    untouched = np.ones(ids.size, bool)
    untouched[masked.places[masked.weights > 0]] = False
    np.testing.assert_array_equal(
        masked.input_ids.reshape(-1)[untouched], ids.reshape(-1)[untouched]
    )


def test_80_10_10(large: Any) -> None:
    _, masked = large
    real = masked.weights > 0
    shown, targets = masked.input_ids.reshape(-1)[masked.places[real]], masked.targets[real]
    others = shown[(shown != VOCABULARY.mask_id) & (shown != targets)]
    assert others.min() >= VOCABULARY.n_special
    n = real.sum()
    # of the 10 % drawn anew, one in 295 is the token itself
    n_ids = VOCABULARY.size - VOCABULARY.n_special
    for came, share in (
        ((shown == VOCABULARY.mask_id).mean(), 0.8),
        (len(others) / n, 0.1 * (1 - 1 / n_ids)),
        ((shown == targets).mean(), 0.1 * (1 + 1 / n_ids)),
    ):
        assert abs(came - share) < 4 * np.sqrt(share * (1 - share) / n)  # standard deviations


def test_places_are_chosen_evenly_and_anew_for_each_key() -> None:
    ids = random_rows(8, 64).input_ids

    def counts(key: jax.Array) -> jax.Array:
        masked = mask_tokens(key, ids, VOCABULARY, share=SHARE)
        return jnp.zeros(ids.size).at[masked.places].add(masked.weights)

    n = 2000
    often = np.asarray(jax.jit(jax.vmap(counts))(jax.random.split(jax.random.key(1), n)).mean(0))
    ordinary = ids.reshape(-1) >= VOCABULARY.n_special
    assert often[~ordinary].max() == 0
    # 400 places: the largest of so many deviations stays below 4.5 standard ones
    assert abs(often[ordinary] - SHARE).max() < 4.5 * np.sqrt(SHARE * (1 - SHARE) / n)


def test_nothing_to_hide_is_no_loss() -> None:
    masked = mask_tokens(jax.random.key(0), np.zeros((2, 8), np.int32), VOCABULARY, share=SHARE)
    assert masked.weights.sum() == 0
    one = np.array([[2, 17, 3, 0]], np.int32)
    masked = mask_tokens(jax.random.key(0), one, VOCABULARY, share=SHARE)
    assert masked.targets[masked.weights > 0].tolist() == [17]


def tiny_model(arch: str = "bert") -> MaskedLM:
    config = MLMConfig(**{**RECIPE.__dict__, "arch": arch}).encoder_config(VOCABULARY.size)
    model = MaskedLM(config, rngs=nnx.Rngs(0))
    leaves, tree = jax.tree.flatten(params_of(model))
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noise = [0.3 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    moved = [x + y for x, y in zip(leaves, noise, strict=True)]  # biases were 0, and scales 1
    return nnx.merge(nnx.graphdef(model), jax.tree.unflatten(tree, moved))


def params_of(model: MaskedLM) -> Any:
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


@pytest.fixture(scope="module")
def model() -> MaskedLM:
    return tiny_model()


@pytest.fixture(scope="module")
def rows() -> Rows:
    return random_rows(4, 16)


KEY = jax.random.key(3)


def loss_of(model: MaskedLM, rows: Rows) -> jax.Array:
    found = find_masked(model, rows, VOCABULARY, share=SHARE, key=KEY)
    return found.loss / found.n


def test_loss_counts_the_hidden_tokens_alone(model: MaskedLM, rows: Rows) -> None:
    masked = jax.device_get(mask_tokens(KEY, rows.input_ids, VOCABULARY, share=SHARE))
    everywhere = np.arange(rows.input_ids.size)
    logits = np.asarray(
        model(masked.input_ids, rows.segment_ids, rows.position_ids, everywhere), np.float64
    )
    log_shares = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    real = masked.weights > 0
    places, targets = masked.places[real], masked.targets[real]
    found = find_masked(model, rows, VOCABULARY, share=SHARE, key=KEY)
    assert found.n == real.sum()
    assert found.loss == pytest.approx(-log_shares[places, targets].sum(), rel=1e-5)
    assert found.n_correct == (logits[places].argmax(axis=1) == targets).sum()


def test_gradient(model: MaskedLM, rows: Rows) -> None:
    """Of the bias in closed form; of everything along a direction, against differences."""
    graphdef, params = nnx.graphdef(model), params_of(model)

    @jax.jit
    def value_and_grad(params: Any) -> Any:
        return jax.value_and_grad(lambda p: loss_of(nnx.merge(graphdef, p), rows))(params)

    _, grads = value_and_grad(params)
    masked = jax.device_get(mask_tokens(KEY, rows.input_ids, VOCABULARY, share=SHARE))
    real = masked.weights > 0
    logits = model(masked.input_ids, rows.segment_ids, rows.position_ids, masked.places[real])
    errors = jax.nn.softmax(logits) - jax.nn.one_hot(masked.targets[real], VOCABULARY.size)
    np.testing.assert_allclose(grads["head"]["bias"], errors.mean(axis=0), atol=1e-6)

    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(5), len(leaves))
    noise = [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
    direction = jax.tree.unflatten(tree, noise)

    def moved(step: float) -> float:
        return float(value_and_grad(jax.tree.map(lambda p, d: p + step * d, params, direction))[0])

    step = 1e-3  # float32: below it the losses' rounding shows, above it their curvature
    along = sum(jax.tree.leaves(jax.tree.map(lambda g, d: jnp.sum(g * d), grads, direction)))
    assert (moved(step) - moved(-step)) / (2 * step) == pytest.approx(float(along), rel=1e-2)


def test_attention_stays_within_the_sentence(model: MaskedLM) -> None:
    first, second, other = (np.array(x, np.int32) for x in ([2, 9, 4, 3], [2, 7, 3], [2, 8, 3]))
    logits = [
        model(*pack([4, 3], 8).fill([first, neighbour]), np.array([2]))
        for neighbour in (second, other)
    ]
    np.testing.assert_array_equal(*logits)


def test_decoder_is_the_word_embeddings(rows: Rows) -> None:
    model = tiny_model()
    before = model(*rows, np.array([1]))
    table = model.encoder.embeddings.word_embeddings.embedding
    absent = 299
    assert absent not in rows.input_ids
    table[...] = table[...].at[absent].add(1.0)
    changed = np.flatnonzero(np.asarray(before != model(*rows, np.array([1])))[0])
    assert changed.tolist() == [absent]


@pytest.mark.parametrize("arch", ["bert", "roberta"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saved_and_read_again(arch: str, dtype: str, tmp_path: Path) -> None:
    model = tiny_model(arch)
    save_masked_lm(model, tmp_path, dtype=dtype)
    stored = load_file(tmp_path / "model.safetensors")
    assert {value.dtype.name for value in stored.values()} == {dtype}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dtype"] == "float32"
    assert config["architectures"] == [{"bert": "Bert", "roberta": "Roberta"}[arch] + "ForMaskedLM"]
    rounded = jax.tree.map(lambda x: x.astype(dtype).astype(jnp.float32), params_of(model))
    again = load_masked_lm(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, params_of(again), rounded)
    encoder = load_encoder(tmp_path)
    jax.tree.map(
        np.testing.assert_array_equal,
        nnx.to_pure_dict(nnx.state(encoder, nnx.Param)),
        rounded["encoder"],
    )


def test_names_are_those_of_transformers(tmp_path: Path) -> None:
    save_masked_lm(tiny_model("bert"), tmp_path / "bert")
    save_masked_lm(tiny_model("roberta"), tmp_path / "roberta")
    heads = {
        "bert": {
            "cls.predictions.transform.dense.weight",
            "cls.predictions.transform.dense.bias",
            "cls.predictions.transform.LayerNorm.weight",
            "cls.predictions.transform.LayerNorm.bias",
            "cls.predictions.bias",
        },
        "roberta": {
            "lm_head.dense.weight",
            "lm_head.dense.bias",
            "lm_head.layer_norm.weight",
            "lm_head.layer_norm.bias",
            "lm_head.bias",
        },
    }
    for arch, names in heads.items():
        stored = load_file(tmp_path / arch / "model.safetensors")
        assert {name for name in stored if not name.startswith(f"{arch}.")} == names


def test_folder_without_a_head_is_refused(tmp_path: Path) -> None:
    save_masked_lm(tiny_model(), tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = "cls.predictions.bias"
    save_file(tensors | {name: np.zeros(3, np.float32)}, path, {"format": "pt"})
    with pytest.raises(ModelError, match=rf"{name} must be \(300,\), got \(3,\)"):
        load_masked_lm(tmp_path)
    save_file({k: v for k, v in tensors.items() if k != name}, path, {"format": "pt"})
    with pytest.raises(ModelError, match=f"must hold a masked-language-model head.*no {name}"):
        load_masked_lm(tmp_path)
    assert load_encoder(tmp_path).config.vocab_size == VOCABULARY.size


def test_unknown_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dtype must be one of 'float32', 'bfloat16', got 'int8'"):
        save_masked_lm(tiny_model(), tmp_path, dtype="int8")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arch", ["bert", "roberta"])
def test_against_transformers(arch: str, rows: Rows, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is no dependency of the project")
    from transformers import AutoModelForMaskedLM

    model = tiny_model(arch)
    save_masked_lm(model, tmp_path)
    ids = np.array([[5, 9, 4, 20, 6]], np.int32)  # no special token of either architecture's
    ids = ids + 10
    config = model.encoder.config
    packed = pack([5], 8).fill(
        list(ids), first_position=config.first_position, pad_id=config.pad_token_id
    )
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(ids, dtype=torch.long)).logits[0].numpy()
    np.testing.assert_allclose(model(*packed, np.arange(5)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "gpt"}, "arch must be one of 'bert', 'roberta', got 'gpt'"),
        ({"n_steps": 0}, "n_steps must be at least 1, got 0"),
        ({"row_length": 2}, "row_length must be at least 3, got 2"),
        ({"learning_rate": -1.0}, "learning_rate must be at least 0, got -1.0"),
        ({"warmup": 1.5}, "warmup must be in 0..1, a share of the steps, got 1.5"),
        ({"masked_share": 0.0}, "masked_share must lie between 0 and 1, got 0.0"),
        ({"held_out_share": 1.0}, "held_out_share must lie between 0 and 1, got 1.0"),
    ],
)
def test_settings_out_of_range(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        MLMConfig(**changes)
