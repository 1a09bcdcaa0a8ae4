"""The recipe: loss, gradient, optimiser, schedule, batches, order, and the folder it ends in."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tiny_training import (
    GOLDEN,
    N_DEV,
    N_STEPS,
    N_TRAIN,
    RECIPE,
    tiny_config,
    tiny_encoder,
    tiny_pairs,
    tiny_tokenizer,
)

from jaxgeom.models import Encoder, encode, load_encoder, load_tokenizer, pack, save_encoder
from jaxgeom.tasks import StsPairs, cosine_scores
from jaxgeom.training import (
    SiameseConfig,
    evaluate,
    finetune,
    save_sentence_model,
    sentence_vectors,
    siamese_loss,
)
from jaxgeom.training.batches import (
    Batch,
    TokenizedPairs,
    batches,
    row_sizes,
    tokenize_pairs,
)
from jaxgeom.training.loop import epoch_order
from jaxgeom.training.optimizer import is_decayed, warmup_linear_decay
from jaxgeom.training.siamese import cosine, train_step

DROPOUT = jax.random.key(7)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return tiny_encoder()


@pytest.fixture(scope="module")
def pairs() -> StsPairs:
    return tiny_pairs(N_TRAIN, 0)


def tokenized(pairs: StsPairs, model_type: str = "bert") -> TokenizedPairs:
    config, max_length = tiny_config(model_type), RECIPE.max_length
    return tokenize_pairs(tiny_tokenizer(model_type), pairs, config, max_length=max_length)


def batches_of(
    pairs: TokenizedPairs,
    *,
    batch_size: int,
    max_length: int = RECIPE.max_length,
    model_type: str = "bert",
    n_devices: int = 1,
) -> list[Batch]:
    order = np.arange(len(pairs.scores))
    options = {"batch_size": batch_size, "max_length": max_length}
    sizes = row_sizes(pairs, [order], n_devices=n_devices, **options)
    return list(batches(pairs, order, tiny_config(model_type), sizes=sizes, **options))


def pure_params(encoder: Encoder) -> dict:
    return jax.tree.map(jnp.copy, nnx.to_pure_dict(nnx.state(encoder)))


@partial(jax.jit, static_argnames=("graphdef", "pooling"))
def compiled_loss(params, batch, dropout_key, *, graphdef, pooling):
    encoder = nnx.merge(graphdef, params)
    return siamese_loss(encoder, batch, pooling=pooling, dropout_key=dropout_key)


def loss_of(encoder: Encoder, batch: Batch, *, pooling: str = "mean", dropout_key=None):
    graphdef, params = nnx.graphdef(encoder), pure_params(encoder)
    return compiled_loss(params, batch, dropout_key, graphdef=graphdef, pooling=pooling)


def loss_by_hand(encoder: Encoder, pairs: StsPairs, pooling: str, model_type: str) -> float:
    """One sentence after the other through `encode`, the rest in NumPy float64."""
    tokens = encode(
        encoder,
        tiny_tokenizer(model_type),
        [*pairs.sentences1, *pairs.sentences2],
        max_length=RECIPE.max_length,
    )
    first, second = np.split(sentence_vectors(tokens, pooling=pooling), 2)
    return float(np.mean((cosine_scores(first, second) - pairs.scores / 5) ** 2))


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_loss_is_the_squared_error_of_cosines(pairs, pooling: str, model_type: str) -> None:
    encoder = tiny_encoder(model_type)
    (batch,) = batches_of(tokenized(pairs, model_type), batch_size=21, model_type=model_type)
    expected = loss_by_hand(encoder, pairs, pooling, model_type)
    assert expected > 0.01
    # float32 against float64: the cosines are of the order of 1
    assert float(loss_of(encoder, batch, pooling=pooling)) == pytest.approx(expected, abs=1e-6)


def test_packing_changes_only_rounding(encoder, pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tokenized(pairs)
    (narrow,) = batches_of(data, batch_size=21)
    monkeypatch.setattr("jaxgeom.training.batches._LENGTH_MULTIPLE", 66)
    (wide,) = batches_of(data, batch_size=21, max_length=66)
    assert wide.rows.input_ids.shape != narrow.rows.input_ids.shape
    losses = [float(loss_of(encoder, batch)) for batch in (wide, narrow)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_dropout_of_zero_is_no_dropout(pairs) -> None:
    batch = batches_of(tokenized(pairs), batch_size=8)[0]
    encoder = tiny_encoder(dropout=0.0)
    assert loss_of(encoder, batch) == loss_of(encoder, batch, dropout_key=DROPOUT)
    hidden = encoder(*batch.rows)[-1]
    rngs = nnx.Rngs(dropout=DROPOUT)
    np.testing.assert_array_equal(hidden, encoder(*batch.rows, deterministic=False, rngs=rngs)[-1])


def test_dropout_follows_its_key(encoder, pairs) -> None:
    batch = batches_of(tokenized(pairs), batch_size=8)[0]
    keys = [None, DROPOUT, DROPOUT, jax.random.key(8)]
    losses = [float(loss_of(encoder, batch, dropout_key=key)) for key in keys]
    assert losses[1] == losses[2]
    assert len(set(losses)) == 3


def test_gradient_of_the_whole_loss(encoder, pairs) -> None:
    """Along the gradient and along random directions, against central differences."""
    batch = batches_of(tokenized(pairs), batch_size=8)[0]
    graphdef, params = nnx.graphdef(encoder), pure_params(encoder)
    loss = partial(compiled_loss, batch=batch, dropout_key=None, graphdef=graphdef, pooling="mean")
    gradient = jax.grad(loss)(params)
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(0), 3 * len(leaves)).reshape(3, -1)
    drawn = [
        jax.tree.unflatten(
            structure, [jax.random.normal(k, x.shape) for k, x in zip(row, leaves, strict=True)]
        )
        for row in keys
    ]

    def central(direction, step: float) -> float:
        ends = (optax.tree.add_scale(params, s * step, direction) for s in (1, -1))
        above, below = map(loss, ends)
        return float(above - below) / (2 * step)

    for direction in [gradient, *drawn]:
        unit = optax.tree.scale(1 / optax.tree.norm(direction), direction)
        exact = float(optax.tree.vdot(gradient, unit))
        # Richardson's step takes the third derivative out; what remains is float32 rounding of a
        # loss near 0.1, 1e-8, over a step of 0.02
        differences = (4 * central(unit, 0.02) - central(unit, 0.04)) / 3
        assert differences == pytest.approx(exact, abs=2e-5 + 1e-3 * abs(exact))


class LookUp(Encoder):
    """Word embeddings in float64 and nothing else: the encoder itself computes in float32."""

    def __init__(self, table: jax.Array):
        self.table = nnx.Param(table)

    def __call__(self, input_ids, segment_ids, position_ids, *, deterministic=True, rngs=None):
        return self.table[...][jnp.asarray(input_ids)][None]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_gradient_behind_the_encoder_in_float64(pairs, pooling: str) -> None:
    batch = batches_of(tokenized(pairs), batch_size=8)[2]  # the short one
    with jax.enable_x64(True):
        table = jax.random.normal(jax.random.key(0), (250, 4), jnp.float64)
        loss = jax.jit(lambda table: siamese_loss(LookUp(table), batch, pooling=pooling))
        assert loss(table).dtype == jnp.float64
        gradient = np.asarray(jax.grad(loss)(table))
        used = np.flatnonzero(np.abs(gradient).sum(axis=1))
        assert used.size > 1 or pooling == "cls"  # every sentence begins with the same token
        for row in used:
            for column in range(4):
                bump = jnp.zeros_like(table).at[row, column].set(1e-5)
                slope = (loss(table + bump) - loss(table - bump)) / 2e-5
                assert gradient[row, column] == pytest.approx(float(slope), abs=1e-9)


def test_cosine_of_a_zero_vector_is_zero_and_has_a_gradient() -> None:
    rows = jnp.array([[0.0, 0.0], [3.0, 4.0]]), jnp.array([[1.0, 2.0], [4.0, 3.0]])
    np.testing.assert_allclose(cosine(*rows), [0, 0.96], rtol=1e-6)
    gradient = jax.grad(lambda first: cosine(first, rows[1]).sum())(rows[0])
    assert np.isfinite(gradient).all()


def test_last_batch_is_short_and_kept(encoder, pairs) -> None:
    data = tokenized(pairs)
    cut = batches_of(data, batch_size=8)
    assert [int(batch.weights.sum()) for batch in cut] == [8, 8, 5]
    np.testing.assert_array_equal(
        np.concatenate([batch.scores[batch.weights == 1] for batch in cut]), data.scores
    )
    last = StsPairs(*(part[16:] for part in pairs[:3]), pairs.name)
    (alone,) = batches_of(tokenized(last), batch_size=5)
    assert float(loss_of(encoder, cut[2])) == pytest.approx(
        float(loss_of(encoder, alone)), abs=1e-7
    )


def test_a_short_run_has_one_number_of_rows_in_the_short_batch_too(pairs) -> None:
    data = tokenized(pairs)
    chosen = (np.arange(start, start + 8) % 21 for start in (0, 8, 16))
    lengths = ([len(data.ids[i]) for i in (*c, *(c + 21))] for c in chosen)
    needed = [pack(of_batch, 64).n_rows for of_batch in lengths]
    for n_devices in (1, 6):
        cut = batches_of(data, batch_size=8, n_devices=n_devices)
        (n_rows,) = {len(batch.rows.input_ids) for batch in cut}
        assert n_rows % n_devices == 0
        assert max(needed) <= n_rows < max(needed) + n_devices
    (more_than_there_are,) = batches_of(data, batch_size=50)
    assert more_than_there_are.weights.tolist() == [1] * 21 + [0] * 29


def test_a_long_run_has_as_many_numbers_of_rows_as_pay() -> None:
    words = [np.arange(size) for size in (16, 16, 32, 32, 2, 2, 2, 2)]
    data = TokenizedPairs([*words, *words], np.zeros(8, np.float32), 0)
    order, options = np.arange(8), {"batch_size": 2, "max_length": 32}
    found = {n: row_sizes(data, [order] * n, **options) for n in (1, 200)}
    assert found == {1: (4,), 200: (1, 2, 4)}
    with pytest.raises(ValueError, match=r"sizes must reach the 4 rows of a batch, got \(1, 2\)"):
        list(batches(data, order, tiny_config("bert"), sizes=(1, 2), **options))


def test_order_of_an_epoch_follows_the_seed() -> None:
    orders = {(s, e): epoch_order(s, e, 100).tolist() for s in (0, 1) for e in (0, 1)}
    assert all(sorted(order) == list(range(100)) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) == 4
    assert orders[1, 1] == epoch_order(1, 1, 100).tolist()


def test_weight_decay_spares_biases_and_layer_normalisation(encoder) -> None:
    params = pure_params(encoder)
    decayed, spared = set(), set()
    for path, decays in jax.tree_util.tree_flatten_with_path(is_decayed(params))[0]:
        (decayed if decays else spared).add(".".join(str(p.key) for p in path))
    assert spared == {
        "embeddings.norm.bias",
        "embeddings.norm.scale",
        *(
            f"layers.0.{part}_norm.{kind}"
            for part in ("attention", "output")
            for kind in ("bias", "scale")
        ),
        *(
            f"layers.0.{part}.bias"
            for part in ("query_key_value", "attention_output", "intermediate", "output")
        ),
    }
    assert decayed == {
        *(f"embeddings.{part}_embeddings.embedding" for part in ("word", "position", "token_type")),
        *(
            f"layers.0.{part}.kernel"
            for part in ("query_key_value", "attention_output", "intermediate", "output")
        ),
    }
    optimizer = SiameseConfig(learning_rate=0.5, weight_decay=0.1, warmup=0.0).optimizer(10)
    updates, _ = optimizer.update(optax.tree.zeros_like(params), optimizer.init(params), params)
    assert float(jnp.abs(updates["embeddings"]["norm"]["scale"]).max()) == 0
    kernel = params["layers"][0]["output"]["kernel"]
    np.testing.assert_allclose(updates["layers"][0]["output"]["kernel"], -0.05 * kernel, rtol=1e-6)


def test_learning_rate_rises_then_falls() -> None:
    schedule = warmup_linear_decay(7e-5, n_steps=540, warmup=0.1)
    for step in (0, 1, 27, 54, 55, 297, 539, 540):
        expected = 7e-5 * min(step / 54, (540 - step) / 486)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5, abs=1e-12)
    assert float(warmup_linear_decay(1.0, n_steps=4, warmup=0.0)(0)) == 1


def test_long_gradients_are_clipped(encoder, pairs) -> None:
    """The optimiser sees the gradient's direction only where it is longer than the limit."""
    recipe = SiameseConfig(warmup=0.0, weight_decay=0.0)
    optimizer, params = recipe.optimizer(10), pure_params(encoder)
    gradient = optax.tree.ones_like(params)
    moments = [
        optax.tree.get(optimizer.update(scaled, optimizer.init(params), params)[1], "mu")
        for scaled in (gradient, optax.tree.scale(100.0, gradient))
    ]
    assert float(optax.tree.norm(moments[0])) == pytest.approx(0.1, rel=1e-5)  # (1 - b1) x 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *moments)


def one_step(encoder: Encoder, batch: Batch, step: int, recipe: SiameseConfig = RECIPE):
    """Take a step of a run of `N_STEPS` whose products are in the recipe's dtype."""
    dtype = jnp.dtype(recipe.dtype)
    graphdef = nnx.graphdef(Encoder(encoder.config, rngs=nnx.Rngs(0), dtype=dtype))
    params = pure_params(encoder)
    state = recipe.optimizer(N_STEPS).init(params)
    options = {"graphdef": graphdef, "config": recipe, "n_steps": N_STEPS}
    return train_step(params, state, batch, DROPOUT, step, **options)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_master_weights_are_float32(encoder, pairs, dtype: str) -> None:
    batch = batches_of(tokenized(pairs), batch_size=8)[0]
    key = jax.random.fold_in(DROPOUT, 5)
    expected = float(loss_of(encoder, batch, dropout_key=key))
    done = one_step(encoder, batch, 5, dataclasses.replace(RECIPE, dtype=dtype))
    kinds = {leaf.dtype for leaf in jax.tree.leaves((done.params, done.opt_state))}
    assert kinds == {jnp.dtype("float32"), jnp.dtype("int32")}  # the latter count steps
    # bfloat16 has 8 bits: products are off by 0.4 %, and so is what is made of them
    tolerance = {"float32": 1e-6, "bfloat16": 1e-2}[dtype]
    assert float(done.loss) == pytest.approx(expected, abs=tolerance)
    assert (abs(float(done.loss) - expected) > 1e-6) == (dtype == "bfloat16")


def test_one_compilation_for_a_shape(encoder, pairs) -> None:
    first, *others = batches_of(tokenized(pairs), batch_size=8)
    one_step(encoder, first, 0)
    before = train_step._cache_size()
    for step, batch in enumerate(others, 1):
        one_step(encoder, batch, step)
    assert train_step._cache_size() == before


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run from a model folder, with the recipe of these tests."""
    folder = tmp_path_factory.mktemp("tuned")
    save_encoder(tiny_encoder(), folder / "source")
    options = {"seed": 0, "folder": folder, "config": RECIPE, "source": folder / "source"}
    train, dev = tiny_pairs(N_TRAIN, 0), tiny_pairs(N_DEV, 1)
    assert finetune(tiny_encoder(), tiny_tokenizer(), train, dev, **options) == folder / "model"
    return folder


def log_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_log_has_every_step_and_every_epoch(tuned: Path) -> None:
    steps = [record for record in log_of(tuned) if "loss" in record]
    epochs = [record for record in log_of(tuned) if "mean_loss" in record]
    assert [(r["epoch"], r["step"]) for r in steps] == [(1 + s // 3, s + 1) for s in range(N_STEPS)]
    assert [(r["epoch"], r["step"]) for r in epochs] == [(1, 3), (2, 6), (3, 9), (4, 12)]
    for record in epochs:
        losses = [r["loss"] for r in steps if r["epoch"] == record["epoch"]]
        assert record["mean_loss"] == pytest.approx(np.mean(losses), rel=1e-6)
        assert record["pairs_per_second"] > 0


def test_log_ends_with_the_finished_model(tuned: Path) -> None:
    encoder, tokenizer = load_encoder(tuned / "model"), load_tokenizer(tuned / "model")
    scores = evaluate(encoder, tokenizer, tiny_pairs(N_DEV, 1), max_length=RECIPE.max_length)
    last = log_of(tuned)[-1]
    assert {name: last[name] for name in scores} == pytest.approx(scores, abs=1e-6)


def test_folder_is_a_sentence_transformers_model(tuned: Path) -> None:
    files = {str(p.relative_to(tuned)) for p in tuned.rglob("*") if p.is_file()}
    model = {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "training.json",
    }
    assert {f for f in files if not f.startswith("source/")} == {
        "metrics.jsonl",
        *(f"model/{name}" for name in model),
    }
    modules = json.loads((tuned / "model" / "modules.json").read_text())
    assert [m["path"] for m in modules] == ["", "1_Pooling"]
    pooling = json.loads((tuned / "model" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"]
    assert not pooling["pooling_mode_cls_token"]
    assert pooling["word_embedding_dimension"] == 16
    record = json.loads((tuned / "model" / "training.json").read_text())
    assert record["identity"]["learning_rate"] == RECIPE.learning_rate
    assert record["identity"]["seed"] == 0
    assert record["train"]["n_pairs"] == N_TRAIN
    assert record["n_steps"] == N_STEPS


def test_cls_pooling_is_written(tmp_path: Path) -> None:
    options = {"pooling": "cls", "max_length": 64, "record": {}}
    save_sentence_model(tiny_encoder(), tiny_tokenizer(), tmp_path, **options)
    pooling = json.loads((tmp_path / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_cls_token"]
    assert not pooling["pooling_mode_mean_tokens"]


def test_training_lowers_the_loss(tuned: Path, pairs) -> None:
    start, end = (
        loss_by_hand(encoder, pairs, "mean", "bert")
        for encoder in (tiny_encoder(), load_encoder(tuned / "model"))
    )
    assert end < 0.85 * start  # three seeds: 0.57 to 0.72


def test_encoder_is_left_as_it_is(tmp_path: Path, encoder, pairs) -> None:
    before = jax.tree.map(np.array, pure_params(encoder))
    options = {"seed": 0, "folder": tmp_path, "config": RECIPE}
    finetune(encoder, tiny_tokenizer(), pairs, tiny_pairs(N_DEV, 1), **options)
    jax.tree.map(np.testing.assert_array_equal, before, pure_params(encoder))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be at least 0, got -1.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be at least 0, got nan"),
        ({"warmup": 1.5}, "warmup must be in 0..1, a share of the steps, got 1.5"),
        ({"pooling": "max"}, "pooling must be one of 'mean', 'cls', got 'max'"),
        ({"dtype": "float16"}, "dtype must be one of 'float32', 'bfloat16', got 'float16'"),
    ],
)
def test_recipe_that_cannot_be(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        SiameseConfig(**change)


def test_tokenizer_of_another_model_is_refused(pairs) -> None:
    small = dataclasses.replace(tiny_config(), vocab_size=20)
    with pytest.raises(ValueError, match="ids below the encoder's vocab_size = 20, got"):
        tokenize_pairs(load_tokenizer(GOLDEN / "bert"), pairs, small, max_length=64)
