"""The model card of a pre-trained model: what it is, what it read, how well it does, how to remake.

Everything in it comes from the options, the corpus and the run's record.
"""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from jaxgeom.training.corpus import Corpus
from jaxgeom.training.mlm import HIDDEN_IN_EVALUATION
from jaxgeom.training.pretraining import runs_of

CARD = "README.md"
_AGAIN = "## To make it again"
_CURVE_LINES = 12  # of the held-out curve, at most
_NAMES = {"bert": "BERT", "roberta": "RoBERTa"}
_TOKENIZERS = {
    "bert": "WordPiece over lower-case words",
    "roberta": "byte-level BPE",
}


def model_card(
    config: Any,
    corpus: Corpus,
    record: Mapping[str, Any],
    licences: Mapping[str, str],
    *,
    name: str,
) -> str:
    """Return the card as Markdown.

    Args:
        config: The options of the run, a dataclass.
        corpus: What was read.
        record: The contents of the model's `training.json`.
        licences: File of the corpus -> licence.
        name: Of the model.

    Returns:
        The text.
    """
    sections = [
        f"# {name}\n\n{_summary(record)}",
        f"## Corpus\n\n{_corpus(corpus, record, licences)}",
        f"## On held-out text\n\n{_held_out(record)}",
        f"{_AGAIN}\n\n{_commands(config)}",
    ]
    return "\n\n".join(sections) + "\n"


def _summary(record: Mapping[str, Any]) -> str:
    """Say what kind of model it is."""
    recipe = record["identity"]
    encoder = recipe["encoder"]
    arch = encoder["model_type"]
    return (
        f"A small {_NAMES[arch]}, pre-trained from scratch with jaxgeom as a masked language model "
        "and meant for experiments on the geometry of embeddings, not for use.\n\n"
        f"{encoder['num_hidden_layers']} layers × {encoder['hidden_size']}, "
        f"{encoder['num_attention_heads']} heads, {record['n_parameters'] / 1e6:.2f} million "
        f"parameters with the head; vocabulary of {encoder['vocab_size']:,} "
        f"({_TOKENIZERS[arch]}); sentences of up to {recipe['row_length']} tokens. "
        f"Trained for {_steps(record)} "
        f"of {recipe['batch_size']} packed rows of {recipe['row_length']} tokens, AdamW with a "
        f"highest learning rate of {recipe['learning_rate']:g}, without dropout; "
        f"{100 * recipe['masked_share']:g} % of the tokens hidden. Weights stored in "
        f"{recipe['stored']}.\n\n"
        "It opens with `jaxgeom.models.load_encoder`, and with `AutoModel` and "
        "`AutoModelForMaskedLM` of transformers."
    )


def _steps(record: Mapping[str, Any]) -> str:
    """Say for how many steps, run after run."""
    *_, total = _totals(record)
    passes = sum(run["n_epochs"] for run in runs_of(record))
    told = f"{total:,} steps ({passes:.1f} passes over the text)"
    each = [f"{run['n_steps']:,}" for run in runs_of(record)]
    if len(each) > 1:
        told += f", {' and then '.join(each)}, the learning rate rising and falling in each,"
    return told


def _totals(record: Mapping[str, Any]) -> list[int]:
    """Return the steps that are behind the model after each of its runs."""
    return list(accumulate(run["n_steps"] for run in runs_of(record)))


def _corpus(corpus: Corpus, record: Mapping[str, Any], licences: Mapping[str, str]) -> str:
    """Say what was read."""
    lines = [
        [
            file.name,
            f"{file.n_sentences:,}",
            f"{file.n_bytes / 1e6:.2f}",
            licences.get(file.name, "not stated"),
            f"`{file.sha256[:16]}`",
        ]
        for file in corpus.files
    ]
    table = _table(["file", "sentences", "MB", "licence", "sha256 begins"], lines)
    train, held_out = record["train"], record["held_out"]
    return (
        f"{table}\n\n{len(corpus.sentences):,} different sentences. "
        f"{train['n_tokens']:,} tokens were trained on ({train['n_truncated']} sentences cut off); "
        f"{held_out['n_tokens']:,} tokens, {100 * record['identity']['held_out_share']:g} % of the "
        "sentences, were held out."
    )


def _held_out(record: Mapping[str, Any]) -> str:
    """Say how well it does, beside what frequency alone does, and how it got there."""
    runs = runs_of(record)
    before = [0, *_totals(record)]
    curve = [
        {**point, "step": n + point["step"]}
        for n, run in zip(before[:-1], runs, strict=True)
        for point in run["curve"]
    ]
    step = -(-len(curve) // _CURVE_LINES)
    shown = [*curve[step - 1 : -1 : step], curve[-1]]
    lines = [
        [
            f"{point['step']:,}",
            f"{point['mean_loss']:.3f}",
            f"{point['held_out_loss']:.3f}",
            f"{point['held_out_accuracy']:.3f}",
        ]
        for point in shown
    ]
    table = _table(["step", "training loss", "held-out loss", "held-out accuracy"], lines)
    return (
        f"With {100 * HIDDEN_IN_EVALUATION:g} % of the tokens hidden, the weights as stored find "
        f"{record['held_out_accuracy']:.3f} of these "
        f"(the most frequent token: {record['unigram_accuracy']:.3f}); "
        f"their loss is {record['held_out_loss']:.3f} nats "
        f"(by frequency alone: {record['unigram_loss']:.3f}).\n\n"
        f"{table}"
    )


def _commands(config: Any) -> str:
    """Return the command, after those of the model that the run started from."""
    if config.init is None:
        return _command(config)
    card = config.init / CARD
    earlier = card.read_text(encoding="utf-8").partition(_AGAIN)[2] if card.is_file() else ""
    how = f"Then, from the model that this leaves, as `{_word(config.init)}`:"
    return "\n\n".join([part for part in (earlier.strip(), how, _command(config)) if part])


def _command(config: Any) -> str:
    """Return the command that the options stand for; folders by their last part."""
    words = ["python", "-m", "experiments.pretrain"]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value == field.default:
            continue
        words.append("--" + field.name.replace("_", "-"))
        words += list(value) if isinstance(value, tuple) else [_word(value)]
    return f"```bash\n{shlex.join(words)}\n```"


def _word(value: Any) -> str:
    """Return an option's value as it is typed."""
    return value.resolve().name if isinstance(value, Path) else str(value)


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
