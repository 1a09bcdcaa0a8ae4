"""A table of text cells and its three faces: console, Markdown, LaTeX; the cells are the same."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

NOTHING = "—"  # where there is no number
CONSOLE_WIDTH = 132  # of output that goes to a file or a pipe

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "[": "{[}",  # at the start of a row it would be an option of the row's end before it
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "—": "---",
    "·": r"$\cdot$",
}


class Table(NamedTuple):
    """Cells under a header; the first cell of a line says what the line holds."""

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def to_markdown(tables: Sequence[Table], legend: str) -> str:
    """Return the tables as a Markdown document that ends with the legend."""
    return "\n".join([*map(_markdown, tables), legend, ""])


def to_latex(tables: Sequence[Table], legend: str) -> str:
    """Return the tables as LaTeX environments for the package booktabs; the legend a comment."""
    return "\n".join([f"% {legend}", *map(_latex, tables)])


def show(tables: Sequence[Table], legend: str) -> None:
    """Print the tables and the legend on standard output, as wide as the terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=CONSOLE_WIDTH)
    for table in tables:
        console.print(_rich(table))
        for note in table.notes:
            console.print(Text(note, style="dim"))
        console.print()
    console.print(Text(legend))


def correlation(value: float | None) -> str:
    """Format a correlation times 100; — for None and NaN."""
    return NOTHING if value is None or math.isnan(value) else f"{value:.2f}"


def isotropy(value: float | None) -> str:
    """Format I(W) as the study does: 0.31, or 1.1E-5 below a tenth; — for None and NaN."""
    if value is None or math.isnan(value):
        return NOTHING
    if value == 0 or value >= 0.0995:
        return f"{value:.2f}"
    mantissa, exponent = f"{value:.1E}".split("E")
    return f"{mantissa}E{int(exponent)}"


def _markdown(table: Table) -> str:
    """Return one table with its title as a heading and its notes below."""
    rows = [table.header, ["---"] + ["---:"] * (len(table.header) - 1), *table.lines]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    notes = [line for note in table.notes for line in ("", note)]
    return "\n".join([f"### {table.title}", "", *lines, *notes, ""])


def _latex(table: Table) -> str:
    """Return one table; the notes go into its caption."""
    rows = [" & ".join(map(_escaped, row)) + r" \\" for row in table.lines]
    caption = " ".join([table.title + ".", *table.notes])
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
            r"\toprule",
            " & ".join(map(_escaped, table.header)) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _escaped(text: str) -> str:
    """Return `text` with LaTeX's special characters and our signs as commands."""
    return "".join(_LATEX.get(character, character) for character in text)


def _rich(table: Table) -> RichTable:
    """Return one table for the console; no cell is read as markup."""
    face = RichTable(title=Text(table.title, style="bold"), title_justify="left", box=box.SIMPLE)
    for index, name in enumerate(table.header):
        face.add_column(Text(name), justify="right" if index else "left")
    for line in table.lines:
        face.add_row(*map(Text, line))
    return face
