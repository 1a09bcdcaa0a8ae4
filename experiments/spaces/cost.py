"""What a whole run needs: arithmetic counted from the sentences and the models, disk, memory, time.

Floating-point operations are counted from shapes; a time is their number divided by a rate that is
stated beside it. Both are estimates: k-means is taken to need `ITERATIONS`, and no machine does
everything at one rate. The authors' protocol, and the NumPy backend, compute in float64 on the host
whatever the device is: their operations count twice, and at the host's rate.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.command.options import Common, State
from experiments.spaces.checkpoints import WEIGHTS, Source
from experiments.spaces.finetuned import NAMES, read_training_pairs
from experiments.spaces.space import read_pairs, sentences_of
from jaxgeom.models.config import EncoderConfig, read_config
from jaxgeom.models.tokens import Tokenizer, load_tokenizer
from jaxgeom.study import N_RESTARTS
from jaxgeom.tasks.sts import StsPairs

HOST = 5e10  # FLOP/s of two CPU cores in float32, end to end
DEVICES = {"one data-centre GPU": 1e13, "two CPU cores": HOST}  # FLOP/s likewise
ITERATIONS = 50  # of k-means until it stays where it is
FLOAT = 4  # bytes
FILLED_WHEN_ENCODING, FILLED_WHEN_TRAINING = 0.95, 0.84  # share of a packed row that is tokens
CHECKPOINT = 6  # models: weights and two moments, and those of the epoch before
EIGENVALUES = 10  # d^3 operations of one symmetric eigenproblem with its vectors
# passes of n d^2 over the tokens of a space: products for scatter, projection and log partition
PASSES = {"table1": 28, "table2": 32, "curves": 8, "directions": 4}


class Need(NamedTuple):
    """What one model needs in a run of everything."""

    model: str
    n_tokens: int  # of the analysed sentences, special ones included
    n_sentences: int
    n_layers: int  # the embedding output included
    n_features: int
    encoding: float  # floating-point operations
    training: float
    geometry: float
    host: float  # of it, what is computed in float64 on the host
    embeddings_bytes: int
    models_bytes: int
    memory_bytes: int

    def seconds(self, rate: float) -> float:
        """Return the time on a device of so many FLOP/s."""
        on_device = self.encoding + self.training + self.geometry - self.host
        return on_device / rate + 2 * self.host / HOST


def need_of(source: Source, config: Common) -> Need:
    """Count what a model needs; nothing is built or encoded.

    Args:
        source: the model.
        config: the options; its data are read.

    Returns:
        The counts, over all states, seeds and protocols.
    """
    encoder, tokenizer = read_config(source.folder), load_tokenizer(source.folder)
    readings = _different([read_pairs(config, protocol) for protocol in config.protocol])
    texts = sentences_of(readings[0])
    n = _n_tokens(tokenizer, texts, config.max_length)
    weights = sum(
        path.stat().st_size for pattern in WEIGHTS for path in source.folder.glob(pattern)
    )
    spaces, trained = _runs(config)
    n_encoded, n_trained = len(readings) * len({*spaces}), len(readings) * trained
    width, layers = encoder.hidden_size, encoder.num_hidden_layers + 1
    n_kept = n_encoded + len(readings) * len(config.states) * (layers - 1)  # layers of a first seed
    last = FLOAT * n * width
    figure1 = len(config.states) * 4.0 * layers * n * width**2
    geometry = {p: len(spaces) * _geometry(n, width, p, config) + figure1 for p in config.protocol}
    return Need(
        model=source.name,
        n_tokens=n,
        n_sentences=len(texts),
        n_layers=layers,
        n_features=width,
        encoding=n_encoded * n / FILLED_WHEN_ENCODING * _forward(encoder, config.max_length),
        training=n_trained and n_trained * _training(source, encoder, tokenizer, config),
        geometry=sum(geometry.values()),
        host=sum(o for protocol, o in geometry.items() if on_host(protocol, config)),
        embeddings_bytes=n_kept * last,
        models_bytes=weights * (n_trained + CHECKPOINT * bool(n_trained)),
        memory_bytes=max(
            _training_bytes(encoder, weights, config) if n_trained else 0,
            weights + 4 * last + (4 * last if "authors" in config.protocol else 0),  # in float64
        ),
    )


def header(needs: Sequence[Need]) -> Iterator[str]:
    """Yield the lines that say what a run needs."""
    for need in needs:
        yield (
            f"{need.model}: {need.n_tokens:,} tokens of {need.n_sentences:,} sentences, special "
            f"ones included; {need.n_layers} layers, {need.n_features} wide"
        )
    parts = ("encoding", "training", "geometry", "host")
    counts = [f"{sum(getattr(need, part) for need in needs) / 1e12:,.3g}" for part in parts]
    yield (
        "counted: {} TFLOP of encoding, {} of training, {} of geometry, {} of it in float64 on the "
        "host (k-means taken to need {} iterations)".format(*counts, ITERATIONS)
    )
    for machine, rate in DEVICES.items():
        seconds = sum(need.seconds(rate) for need in needs)
        yield (
            f"estimate: {_time(seconds)} on {machine}, at {rate / 1e9:,.0f} GFLOP/s and the host "
            f"at {HOST / 1e9:,.0f}"
        )
    embeddings = sum(need.embeddings_bytes for need in needs)
    models = sum(need.models_bytes for need in needs)
    memory = max(need.memory_bytes for need in needs)
    yield (
        f"estimate: {embeddings / 1e9:.3g} GB of embeddings and {models / 1e9:.3g} GB of models on "
        f"the disk; {memory / 1e9:.3g} GB of memory beside the programs"
    )


def _runs(config: Common) -> tuple[list[tuple[State, int]], int]:
    """Return the different (state, seed) that are encoded, and how many are trained first.

    The seed plays no part in the pre-trained weights: they are encoded once, yet measured each time
    that clusters differ.
    """
    spaces = [(s, 0 if s == "pretrained" else seed) for s in config.states for seed in config.seeds]
    return spaces, sum(state in NAMES.values() for state, _ in spaces)


def _different(readings: Sequence[StsPairs]) -> list[StsPairs]:
    """Return the readings of the pairs that differ in their sentences."""
    found = {tuple(sentences_of(pairs)): pairs for pairs in readings}
    return list(found.values())


def _n_tokens(tokenizer: Tokenizer, sentences: list[str], max_length: int) -> int:
    """Return how many tokens the sentences have, special ones included."""
    return sum(tokens.ids.size for tokens in tokenizer.encode(sentences, max_length=max_length))


def _forward(encoder: EncoderConfig, row: int) -> float:
    """Return the operations of one token's way through the encoder in a packed row."""
    h, inner = encoder.hidden_size, encoder.intermediate_size
    matrices = 2 * (4 * h * h + 2 * h * inner)
    attention = 4 * row * h  # scores and weighted sum; masked segments are computed too
    return encoder.num_hidden_layers * float(matrices + attention)


def _training(
    source: Source, encoder: EncoderConfig, tokenizer: Tokenizer, config: Common
) -> float:
    """Return the operations of one training: forward once, backward twice."""
    texts = sentences_of(read_training_pairs(config))
    n = _n_tokens(tokenizer, texts, config.max_length) / FILLED_WHEN_TRAINING
    return 3 * config.epochs * n * _forward(encoder, config.max_length)


def on_host(protocol: str, config: Common) -> bool:
    """Return whether a protocol is computed in NumPy."""
    return protocol == "authors" or config.backend == "numpy"


def _geometry(n: int, d: int, protocol: str, config: Common) -> float:
    """Return the operations of measuring one space; the authors cluster once, in 10 iterations."""
    products = sum(PASSES.values()) * n * d * d
    iterations = N_RESTARTS * ITERATIONS if protocol == "ours" else 10
    clustering = iterations * 4 * n * config.n_clusters * d
    problems = (2 * config.n_clusters + 16) * EIGENVALUES * d**3
    return float(products + clustering + problems)


def _training_bytes(encoder: EncoderConfig, weights: int, config: Common) -> int:
    """Return the memory of a step: weights, gradients, two moments, a copy; what layers keep."""
    tokens = 2 * config.batch_size * config.max_length // 4  # a sentence is a quarter of a row
    kept = 16 * encoder.hidden_size + 3 * config.max_length * encoder.num_attention_heads
    return 5 * weights + FLOAT * tokens * encoder.num_hidden_layers * kept


def _time(seconds: float) -> str:
    """Return a time to one or two digits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.2g} h"
