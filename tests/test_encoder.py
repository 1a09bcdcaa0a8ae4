"""The encoder against Hugging Face's PyTorch models, and by itself."""

import dataclasses
import hashlib
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import stats

from jaxgeom.models import Encoder, EncoderConfig, Rows, load_encoder, pack, random_encoder
from jaxgeom.models import encoder as module

GOLDEN = Path(__file__).parent / "golden"
MODELS = ["minilm", "bert", "roberta"]
# Float32 rounding over six layers: values reach 10, where neighbouring floats are 1e-6 apart.
TOLERANCE = 2e-5
TINY = EncoderConfig(
    model_type="bert",
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    hidden_act="gelu",
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    max_position_embeddings=20,
    type_vocab_size=2,
    initializer_range=0.3,
    layer_norm_eps=1e-12,
    pad_token_id=0,
)


@pytest.fixture(params=MODELS)
def golden(request) -> tuple[Path, dict[str, np.ndarray]]:
    """A model's folder, and what Hugging Face's PyTorch class made of some sentences."""
    folder = GOLDEN / request.param
    if request.param == "minilm":
        folder = request.getfixturevalue("minilm_dir")
    with np.load(GOLDEN / f"{request.param}.npz") as file:
        return folder, dict(file)


@pytest.fixture(scope="module")
def tiny() -> Encoder:
    return random_encoder(TINY, key=jax.random.key(0))


@jax.jit
def forward(graphdef, state, rows, dropout_key=None):
    rngs = None if dropout_key is None else nnx.Rngs(dropout=dropout_key)
    return nnx.merge(graphdef, state)(*rows, deterministic=rngs is None, rngs=rngs)


def run(encoder: Encoder, rows: Rows, dropout_key: jax.Array | None = None) -> jax.Array:
    return forward(*nnx.split(encoder), rows, dropout_key)


def with_dropout(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0) -> EncoderConfig:
    return dataclasses.replace(
        TINY,
        hidden_dropout_prob=hidden_dropout_prob,
        attention_probs_dropout_prob=attention_probs_dropout_prob,
    )


def tiny_rows() -> Rows:
    """Two rows of 8: sentences of 3 and 4 tokens and a place of padding, and one of 8."""
    segments = np.array([[1, 1, 1, 2, 2, 2, 2, 0], [1] * 8], np.int32)
    positions = np.array([[0, 1, 2, 0, 1, 2, 3, 0], list(range(8))], np.int32)
    ids = np.random.default_rng(0).integers(1, TINY.vocab_size, (2, 8), np.int32)
    return Rows(ids, segments, positions)


def golden_states(folder, golden, row_length, *, packed, dtype=jnp.float32) -> np.ndarray:
    """The hidden states of the golden sentences, [layers + 1, n, h] in their order."""
    lengths = golden["lengths"]
    ids = np.split(golden["ids"], np.cumsum(lengths)[:-1])
    packing = pack(lengths, row_length)
    if not packed:
        each = np.arange(len(lengths))
        packing = packing._replace(
            rows=each, starts=0 * each, segments=0 * each + 1, n_rows=each.size
        )
    encoder = load_encoder(folder, dtype=dtype)
    config = encoder.config
    rows = packing.fill(ids, first_position=config.first_position, pad_id=config.pad_token_id)
    states = np.asarray(run(encoder, rows))
    return states.reshape(len(states), -1, config.hidden_size)[:, packing.places]


def test_golden_is_of_these_weights(golden):
    folder, stored = golden
    weights = (folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == str(stored["sha256"])
    assert str(stored["torch"])[0].isdigit()
    assert str(stored["transformers"])[0].isdigit()


def test_golden_has_a_single_word_and_a_sentence_near_the_limit(golden):
    _, stored = golden
    assert stored["lengths"].min() <= 4
    assert stored["lengths"].max() >= 0.9 * stored["max_length"]


@pytest.mark.parametrize("packed", [True, False])
def test_parity_at_every_layer(golden, packed):
    states = golden_states(*golden, 128, packed=packed)
    expected = golden[1]["hidden"]
    assert states.shape == expected.shape
    assert states.dtype == np.float32
    worst = np.abs(states - expected).max(axis=(1, 2))
    assert (worst <= TOLERANCE).all(), worst


def test_bfloat16_stays_close(golden):
    # Operands of a product keep 8 bits, so are off by up to 2^-9 = 0.2 %; errors of that size come
    # in at six products a layer and add up like a random walk over the layers (3 to 6 of them):
    # sqrt(36) * 0.2 % = 1.2 %. Twice that is allowed, relative to the state as a whole.
    states = golden_states(*golden, 128, packed=True, dtype=jnp.bfloat16)
    expected = golden[1]["hidden"]
    assert states.dtype == np.float32
    error = np.linalg.norm(states - expected, axis=(1, 2)) / np.linalg.norm(expected, axis=(1, 2))
    assert error[0] <= 1e-6  # no product before the embeddings' output
    assert (error[1:] > 1e-5).all()  # or it was not bfloat16
    assert (error[1:] <= 0.024).all(), error


def test_a_sentence_does_not_see_its_neighbours(tiny):
    rows = tiny_rows()
    other = rows.input_ids.copy()
    other[0, 3:] = (other[0, 3:] + 7) % TINY.vocab_size  # the second sentence and the padding
    before, after = run(tiny, rows), run(tiny, rows._replace(input_ids=other))
    np.testing.assert_array_equal(before[:, 0, :3], after[:, 0, :3])
    np.testing.assert_array_equal(before[:, 1], after[:, 1])
    assert (before[:, 0, 3:7] != after[:, 0, 3:7]).any(axis=-1).all()


def test_padding_is_finite(tiny):
    rows = tiny_rows()
    empty = rows._replace(segment_ids=0 * rows.segment_ids)
    assert np.isfinite(run(tiny, empty)).all()


def test_unknown_token_gives_nan(tiny):
    rows = tiny_rows()
    rows.input_ids[0, 0] = TINY.vocab_size
    states = run(tiny, rows)
    assert np.isnan(states[:, 0, 0]).all()
    assert np.isfinite(states[:, 1]).all()


def test_attention_and_its_gradient_are_those_of_the_softmax():
    keys = jax.random.split(jax.random.key(0), 4)
    query, key, value, weight = (jax.random.normal(k, (2, 3, 5, 4)) for k in keys)
    bias = jnp.where(jnp.arange(5) < 3, 0.0, -1e30)[None, None, None, :] * jnp.ones((2, 1, 5, 1))

    def ours(query, key, value):
        return (weight * module._attention(query, key, value, bias, lambda w: w)).sum()

    def textbook(query, key, value):
        scores = jnp.einsum("bnqd,bnkd->bnqk", query, key) / 2.0
        shares = jax.nn.softmax(scores + bias, axis=-1)
        return (weight * jnp.einsum("bnqk,bnkd->bnqd", shares, value)).sum()

    for one, other in zip(
        jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(query, key, value),
        jax.jit(jax.value_and_grad(textbook, (0, 1, 2)))(query, key, value),
        strict=True,
    ):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), one, other)


def test_large_scores_do_not_overflow():
    query = jnp.full((1, 1, 2, 4), 100.0)
    value = jnp.arange(8.0).reshape(1, 1, 2, 4)
    context = module._attention(query, query, value, jnp.zeros((1, 1, 2, 2)), lambda w: w)
    np.testing.assert_allclose(context, np.broadcast_to([2, 3, 4, 5], (1, 1, 2, 4)))


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("gelu", lambda x: x * stats.norm.cdf(x)),
        (
            "gelu_new",
            lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        ),
        (
            "gelu_pytorch_tanh",
            lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        ),
        ("relu", lambda x: np.maximum(x, 0)),
        ("silu", lambda x: x / (1 + np.exp(-x))),
    ],
)
def test_activation(name, formula):
    x = np.linspace(-6, 6, 1001)
    # far from the 5e-4 between the two forms of GELU
    np.testing.assert_allclose(module._ACTIVATIONS[name](jnp.asarray(x)), formula(x), atol=2e-6)


def test_every_activation_has_a_function():
    from jaxgeom.models.config import ACTIVATIONS

    assert set(module._ACTIVATIONS) == set(ACTIVATIONS)


@pytest.mark.parametrize("where", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_is_driven_by_its_key(where):
    encoder = random_encoder(
        with_dropout(**{"hidden_dropout_prob": 0.0} | {where: 0.1}), key=jax.random.key(0)
    )
    first, again, other = (run(encoder, tiny_rows(), jax.random.key(k)) for k in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    plain = run(encoder, tiny_rows())
    assert (first[-1] != other[-1]).mean() > 0.5
    assert (first[-1] != plain[-1]).mean() > 0.5


def test_each_place_drops_differently():
    """In equal layers, on equal input: only the dropout tells one from the next."""
    graphdef, state = nnx.split(random_encoder(with_dropout(), key=jax.random.key(0)).layers[0])
    hidden, bias = jnp.ones((1, 4, 16)), jnp.zeros((1, 1, 4, 4))

    @jax.jit
    def two_layers(state, key):
        layer, rngs = nnx.merge(graphdef, state), nnx.Rngs(dropout=key)
        return [layer(hidden, bias, deterministic=False, rngs=rngs) for _ in range(2)]

    one, two = two_layers(state, jax.random.key(0))
    assert (one != two).any()


def test_dropout_of_zero_changes_nothing():
    encoder = random_encoder(with_dropout(hidden_dropout_prob=0.0), key=jax.random.key(0))
    trained = run(encoder, tiny_rows(), jax.random.key(0))
    np.testing.assert_array_equal(trained, run(encoder, tiny_rows()))


def test_dropout_without_randomness_is_refused(tiny):
    with pytest.raises(ValueError, match="rngs must be given when deterministic is False"):
        tiny(*tiny_rows(), deterministic=False)


def test_gradients_are_finite_and_reach_every_parameter(tiny):
    graphdef, state = nnx.split(tiny)
    rows = tiny_rows()
    real = jnp.asarray(rows.segment_ids > 0)[:, :, None]

    @jax.jit
    @jax.grad
    def gradient(state):
        last = nnx.merge(graphdef, state)(*rows)[-1]
        return jnp.where(real, last, 0)[:, :, ::3].sum()

    for path, grad in nnx.to_flat_state(gradient(state)):
        values = np.asarray(grad[...])
        assert np.isfinite(values).all(), path
        assert (values != 0).any(), path


def test_the_last_layer_alone_takes_no_memory_for_the_others():
    def temporary_bytes(n_layers, select):
        config = dataclasses.replace(TINY, num_hidden_layers=n_layers)
        graphdef, state = nnx.split(random_encoder(config, key=jax.random.key(0)))
        rows = Rows(*(np.zeros((16, 16), np.int32) for _ in range(3)))
        call = jax.jit(lambda state, rows: select(nnx.merge(graphdef, state)(*rows)))
        return call.lower(state, rows).compile().memory_analysis().temp_size_in_bytes

    few, many = (temporary_bytes(n, lambda states: states[-1]) for n in (4, 12))
    one_state = 16 * 16 * TINY.hidden_size * 4
    assert many - few < one_state


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_lowers_for_accelerators(platform, dtype):
    graphdef, state = nnx.split(random_encoder(TINY, key=jax.random.key(0), dtype=dtype))
    call = jax.jit(lambda state, rows: nnx.merge(graphdef, state)(*rows))
    exported = jax.export.export(call, platforms=[platform])(state, tiny_rows())
    assert exported.out_avals[0].shape == (3, 2, 8, 16)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_parity_live(name, tmp_path):
    """Fresh weights and other sizes than the stored ones, padded by torch, where torch is there."""
    torch = pytest.importorskip("torch", reason="torch is no dependency of the project")
    import transformers

    config_class, model_class = {
        "bert": (transformers.BertConfig, transformers.BertModel),
        "roberta": (transformers.RobertaConfig, transformers.RobertaModel),
    }[name]
    config = config_class(
        vocab_size=90,
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=80,
        max_position_embeddings=40,
        hidden_act="gelu_new",
        initializer_range=0.2,
        layer_norm_eps=1e-3,
    )
    model = model_class(config).eval()
    model.save_pretrained(str(tmp_path))
    ids = [np.random.default_rng(i).integers(5, 90, length) for i, length in enumerate((1, 7, 30))]
    pad = config.pad_token_id
    padded = torch.tensor([[*i, *[pad] * (30 - len(i))] for i in ids])
    mask = torch.tensor([[1] * len(i) + [0] * (30 - len(i)) for i in ids])
    with torch.no_grad():
        output = model(padded, attention_mask=mask, output_hidden_states=True)
    expected = torch.stack(output.hidden_states).numpy()[:, mask.numpy().astype(bool)]
    stored = {"lengths": np.array([len(i) for i in ids]), "ids": np.concatenate(ids)}
    states = golden_states(tmp_path, stored, 38, packed=True)
    assert np.abs(states - expected).max() <= TOLERANCE
