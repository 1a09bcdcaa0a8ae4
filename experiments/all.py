"""Everything: all tables, figures and findings of the study in one run, and one report of them.

    python -m experiments.all --models NAME=FOLDER --data FOLDER --corpus FILE.csv --output report

Each model is fine-tuned once a seed and encoded once a state and seed: all layers for the first
seed, the last layer for the others, memory-mapped from OUTPUT/embeddings. What the run needs is
printed before it starts. OUTPUT receives the files of every experiment, and report.html and
report.md. `--preset paper` is the study itself: BERT and RoBERTa base and STS-B from the Hub.
"""

import dataclasses
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from experiments import curves, directions, figure1, figure2, findings, table1, table2
from experiments.command.options import Common, Protocol, require_valid
from experiments.command.record import run_record, write_record
from experiments.command.start import main
from experiments.layout.report import write_report
from experiments.spaces.checkpoints import sources
from experiments.spaces.cost import Need, header, need_of

EXPERIMENTS: tuple[ModuleType, ...] = (figure1, table1, table2, curves, directions, figure2)


@dataclass(frozen=True)
class Config(Common):
    """Every experiment in one run, and a report."""

    protocol: tuple[Protocol, ...] = ("ours", "authors")
    """Rows of each: ours; authors: SciPy's kmeans2, the sign NumPy's solver returns, default CSV
    quoting."""
    corpus: Path | None = None
    """Sentences of Figure 2: a .csv file with a column Sentence, or a .txt file with one sentence a
    line; without it, the sentences of the pairs."""
    max_tokens: int = figure2.Config.max_tokens
    """Figure 2: token occurrences drawn, at most."""
    least: tuple[int, ...] = table2.Config.least
    """Table 2: least directions removed; by default 100 and 700 of 768, the same shares of other
    widths."""
    variance: tuple[float, ...] = directions.Config.variance
    """Dominant directions: shares of the variance."""
    isotropy: tuple[float, ...] = directions.Config.isotropy
    """Dominant directions: values of I(W) to reach."""
    output: Path = Path("report")
    """Folder of the report, of all results, and of what is reused: embeddings and models."""


class Result(NamedTuple):
    """What a run gives back and writes."""

    report: Path  # report.html; report.md lies beside it
    record: dict[str, Any]  # of run.json


def run(config: Config) -> Result:
    """Run every experiment, then write the report.

    Args:
        config: the options.

    Returns:
        Where the report is, and the record of the run.

    Raises:
        OSError: no room on the disk.
        ValueError, ImportError: an option, a model or a file that cannot be used.
    """
    require_valid(config)
    if not config.models:
        raise ValueError("--models must name one or more encoders, got none")
    config.output.mkdir(parents=True, exist_ok=True)
    needs = [need_of(source, config) for source in sources(config.models)]
    lines = [*header(needs)]
    print("\n".join(lines), flush=True)
    require_room(needs, config.output)
    seconds, inputs = {}, []
    for name, record, elapsed in _experiments(config):
        seconds[name] = elapsed
        inputs.append({"experiment": name, "spaces": len(record["inputs"])})
    record = run_record(config, seconds, inputs) | {"need": lines}
    write_record(config.output / "run.json", "all", record)
    return Result(write_report(config.output, list(seconds)), record)


def options_of(experiment: ModuleType, config: Config) -> Any:
    """Return the options of one experiment; all are among those of the whole run.

    Table 2 reads the labels that Table 1 has just written.
    """
    fields = [field.name for field in dataclasses.fields(experiment.Config)]
    options = experiment.Config(**{f: getattr(config, f) for f in fields if hasattr(config, f)})
    if experiment is table2:
        options = dataclasses.replace(options, labels=config.output / "labels")
    return options


def require_room(needs: list[Need], output: Path) -> None:
    """Raise `OSError` unless the disk has room for embeddings and models that are not there yet."""
    need = sum(need.embeddings_bytes + need.models_bytes for need in needs)
    kept = [path for name in ("embeddings", "finetuned") for path in (output / name).rglob("*")]
    there = sum(path.stat().st_size for path in kept if path.is_file())
    free = shutil.disk_usage(output).free
    if need - there > free:
        raise OSError(
            f"{output}: {need / 1e9:.3g} GB are needed, {there / 1e9:.3g} GB of them may be there, "
            f"{free / 1e9:.3g} GB are free"
        )


def _experiments(config: Config) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Run each experiment; yield its name, its record and its seconds."""
    ran = []
    for experiment in EXPERIMENTS:
        name = experiment.__name__.rpartition(".")[2]
        ran.append(name)
        print(f"{name} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        record = experiment.run(options_of(experiment, config)).record
        yield name, record, time.perf_counter() - start
    start = time.perf_counter()
    record = findings.run(findings.Config(config.output), sources=ran).record
    yield "findings", record, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(Config, run, name="all"))
