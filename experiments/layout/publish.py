"""The files that every experiment leaves behind, and its tables on the console."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.command.record import write_record
from experiments.layout.tables import Table, show, to_latex, to_markdown
from experiments.rows.row import Row
from jaxgeom import distributed
from jaxgeom._files import jsonable, write_json, write_text


def publish(
    output: Path,
    name: str,
    rows: Sequence[Row],
    tables: Sequence[Table],
    legend: str,
    record: Row,
    **more: Any,
) -> None:
    """Write NAME.json, .csv, .md and .tex and run.json into OUTPUT, then print the tables.

    Args:
        output: folder of the results.
        name: of the experiment.
        rows: one record for each line of NAME.json and NAME.csv, all with the same fields.
        tables: the rows as they are read by people.
        legend: what the tables' words and numbers mean.
        record: of the run; run.json holds the last one of each experiment of the folder.
        **more: further keys of NAME.json.
    """
    write_json(output / f"{name}.json", {"schema": 1, "rows": rows, **more})
    write_csv(output / f"{name}.csv", rows)
    write_text(output / f"{name}.md", to_markdown(tables, legend))
    write_text(output / f"{name}.tex", to_latex(tables, legend))
    write_record(output / "run.json", name, record)
    if distributed.is_writer():
        show(tables, legend)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows under a header of their fields; null is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(jsonable(rows))
    write_text(path, text.getvalue())
