"""One report of a folder of results: what its JSON files hold, laid out again, and its figures.

report.html holds everything itself: styles, and each figure as an image within the file; it runs
no script and loads nothing. report.md shows the same with the figures beside it.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.command.record import read_records
from experiments.layout import curves, directions, figure1, figure2, findings, settings
from experiments.layout.html import Section, page
from experiments.layout.orderings import LEGEND as ORDERINGS
from experiments.layout.orderings import ordering_tables
from experiments.layout.tables import NOTHING, Table, to_markdown
from experiments.rows.row import Row, grouped
from jaxgeom._files import write_text

TITLE = "Isotropy before and after fine-tuning"
Document = dict[str, Any]  # NAME.json


def write_report(folder: Path, names: Sequence[str]) -> Path:
    """Write report.html and report.md into a folder of results.

    Args:
        folder: holds NAME.json of each experiment, its figures, and run.json.
        names: the experiments that the report is of.

    Returns:
        The path of report.html.
    """
    sections = [*_sections(folder, names)]
    summary = [*_summary(folder)] if "findings" in names else []
    texts = [f"# {TITLE}", *summary, *map(_markdown, sections)]
    write_text(folder / "report.md", "\n\n".join(texts))
    path = folder / "report.html"
    write_text(path, page(TITLE, summary, sections, folder))
    return path


def _sections(folder: Path, names: Sequence[str]) -> Iterator[Section]:
    """Yield the sections in the order in which they are read."""
    records = read_records(folder / "run.json")
    for name, layout in LAYOUTS.items():
        if name in names:
            yield layout(_read(folder, name), records[name])
    yield _what_ran(records, names)


def _read(folder: Path, name: str) -> Document:
    """Return NAME.json."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def _summary(folder: Path) -> Iterator[str]:
    """Yield how many of the study's claims hold, for each model and protocol."""
    for rows in grouped(_read(folder, "findings")["rows"], "model", "protocol"):
        counts = Counter(row["answer"] for row in rows)
        answers = ", ".join(f"{n} {answer}" for answer, n in counts.most_common())
        yield f"{rows[0]['model']}, protocol {rows[0]['protocol']}: {len(rows)} claims, {answers}."


def _findings(document: Document, _: Row) -> Section:
    """Return the section on the study's claims, answered."""
    rows = document["rows"]
    tables = findings.tables_of(rows)
    return Section("findings", "Findings", tables, findings.LEGEND)


def _table1(document: Document, _: Row) -> Section:
    """Return the section on the five settings."""
    rows = document["rows"]
    legend = settings.legend_of(rows)
    return Section("table1", "Table 1: five settings", settings.tables_of(rows), legend)


def _table2(document: Document, _: Row) -> Section:
    """Return the section on the least directions, with the orders of I."""
    rows = document["rows"]
    tables = [*settings.tables_of(rows), *ordering_tables(document["orderings"])]
    legend = f"{settings.legend_of(rows)} {ORDERINGS}"
    return Section("table2", "Table 2: least directions removed", tables, legend)


def _figure1(document: Document, _: Row) -> Section:
    """Return the section on isotropy layer by layer."""
    rows = document["rows"]
    content = (figure1.tables_of(rows), figure1.legend_of(rows), figure1.figures_of(rows))
    return Section("figure1", "Figure 1: isotropy in every layer", *content)


def _figure2(document: Document, _: Row) -> Section:
    """Return the section on token frequency in the plane."""
    rows = document["rows"]
    content = (figure2.tables_of(rows), figure2.LEGEND, figure2.figures_of(rows))
    return Section("figure2", "Figure 2: token frequency", *content)


def _curves(document: Document, record: Row) -> Section:
    """Return the section on the removal curves."""
    rows = document["rows"]
    tables = curves.tables_of(rows, record["options"]["n_directions"])
    content = (tables, curves.legend_of(rows), curves.figures_of(rows))
    return Section("curves", "Removal curves", *content)


def _directions(document: Document, _: Row) -> Section:
    """Return the section on dominant directions."""
    tables = directions.tables_of(document["rows"])
    figures = directions.figures_of(document["spectra"])
    return Section("directions", "Dominant directions", tables, directions.LEGEND, figures)


LAYOUTS: dict[str, Callable[[Document, Row], Section]] = {
    "findings": _findings,
    "table1": _table1,
    "table2": _table2,
    "figure1": _figure1,
    "figure2": _figure2,
    "curves": _curves,
    "directions": _directions,
}


def _what_ran(records: Row, names: Sequence[str]) -> Section:
    """Return the section on the run itself, from run.json."""
    record = records["all"]
    tables = [
        Table("Time by stage", ("", "total", "stages"), [*_times(records, names)]),
        Table("Spaces", ("", "pairs", "tokens", "truncated"), [*_spaces(records)]),
        Table("Options", ("", "value"), [[k, _face(v)] for k, v in record["options"].items()]),
        Table("Machine", ("", "value"), [*_machine(record)]),
    ]
    need = "; ".join(record["need"])
    legend = f"Before the run, from counts and stated rates: {need}."
    return Section("run", "What ran", tables, legend)


def _times(records: Row, names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the seconds of each experiment, in all and by stage."""
    for name in names:
        stages = ", ".join(f"{stage} {s:.1f} s" for stage, s in records[name]["seconds"].items())
        yield [name, f"{records['all']['seconds'][name]:.1f} s", stages]
    yield ["together", f"{sum(records['all']['seconds'].values()):.1f} s", NOTHING]


def _spaces(records: Row) -> Iterator[list[str]]:
    """Yield what was measured, as Table 1 had it."""
    for space in records["table1"]["inputs"]:
        name = f"{space['model']} {space['state']} seed {space['seed']}, {space['protocol']}"
        yield [name, *(f"{space[f'n_{what}']:,}" for what in ("pairs", "tokens", "truncated"))]


def _machine(record: Row) -> Iterator[list[str]]:
    """Yield the versions and the device."""
    for name, value in (record["versions"] | record["device"]).items():
        yield [name, _face(value)]


def _face(value: Any) -> str:
    """Return an option as text."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or NOTHING
    return NOTHING if value is None else str(value)


def _markdown(section: Section) -> str:
    """Return a section with its figures as files beside it."""
    images = [f"![{figure.text}]({figure.name}.png)" for figure in section.figures]
    return "\n\n".join(
        [f"## {section.title}", *images, to_markdown(section.tables, section.legend)]
    )
