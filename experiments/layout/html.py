"""A report as one HTML file that needs no network and no script, on a screen or on paper."""

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from experiments.layout.figures import Drawn
from experiments.layout.tables import Table

STYLE = """
:root { color-scheme: light dark; --text: #1b1b1b; --dim: #5c5c5c; --page: #ffffff; --line: #d4d4d4;
  --band: #f4f4f2; --link: #0b5394; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e6e3; --dim: #a6a6a2; --page: #161616;
  --line: #3b3b3b; --band: #202020; --link: #8ab4f8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 76rem; color: var(--text);
  background: var(--page); font: 1rem/1.55 Georgia, "Times New Roman", serif; }
h1, h2, nav, table, figcaption { font-family: system-ui, "Segoe UI", Roboto, Arial, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; }
h2 { font-size: 1.35rem; margin: 3rem 0 1rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
p { max-width: 46rem; }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; }
a { color: var(--link); }
.legend, .note { color: var(--dim); font-size: 0.9rem; }
.scroll { overflow-x: auto; margin: 1.5rem 0 0.5rem; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: 0.4rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { border-bottom: 2px solid var(--text); text-align: right; vertical-align: bottom; }
thead th:first-child, tbody th { text-align: left; }
tbody th { font-weight: 400; white-space: pre-wrap; }
td { text-align: right; }
.words td, .words thead th { text-align: left; }
#findings tbody th, #findings td:nth-child(2), #findings td:nth-child(3) { min-width: 13rem; }
#findings td:last-child { font-weight: 600; }
tbody tr:nth-child(even) { background: var(--band); }
figure { margin: 1.5rem 0; }
figure img { max-width: 100%; height: auto; background: #ffffff; border-radius: 4px; }
figcaption { font-size: 0.85rem; color: var(--dim); max-width: 46rem; }
@media print {
  :root { --text: #000000; --dim: #333333; --page: #ffffff; --line: #999999; --band: #ffffff;
    --link: #000000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2 { break-after: avoid; }
  tr, figure { break-inside: avoid; }
  thead { display: table-header-group; }
  table { font-size: 7.5pt; }
  th, td { padding: 0.15rem 0.35rem; }
  .scroll { overflow: visible; }
  #findings tbody th, #findings td:nth-child(2), #findings td:nth-child(3) { min-width: 0; }
}
"""
WORDS = ("findings", "run")  # sections whose tables hold words: left-aligned


class Section(NamedTuple):
    """What the report says of one experiment."""

    name: str  # of the experiment
    title: str
    tables: Sequence[Table]
    legend: str
    figures: Sequence[Drawn] = ()


def page(title: str, summary: Sequence[str], sections: Sequence[Section], folder: Path) -> str:
    """Return the report.

    Args:
        title: of the page.
        summary: paragraphs below it.
        sections: what it holds, in order.
        folder: where the figures lie as PNG; they go into the page.

    Returns:
        A whole HTML document.
    """
    links = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            f"<h1>{escape(title)}</h1>",
            *(f"<p>{escape(line)}</p>" for line in summary),
            f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n<main>',
            *(line for section in sections for line in _section(section, folder)),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _section(section: Section, folder: Path) -> Iterator[str]:
    """Yield a section's figures, tables and legend."""
    words = ' class="words"' if section.name in WORDS else ""
    yield f'<section id="{section.name}"{words}>\n<h2>{escape(section.title)}</h2>'
    for figure in section.figures:
        yield _figure(figure, folder)
    for table in section.tables:
        yield _table(table)
        for note in table.notes:
            yield f'<p class="note">{escape(note)}</p>'
    yield f'<p class="legend">{escape(section.legend)}</p>\n</section>'


def _figure(figure: Drawn, folder: Path) -> str:
    """Return a figure with its image inside."""
    image = base64.b64encode((folder / f"{figure.name}.png").read_bytes()).decode()
    text = escape(figure.text)
    source = f'src="data:image/png;base64,{image}"'
    caption = f"<figcaption>{text}</figcaption>"
    return f'<figure id="{escape(figure.name)}"><img alt="{text}" {source}>\n{caption}</figure>'


def _table(table: Table) -> str:
    """Return a table whose first column names its lines; wide ones scroll by themselves."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    lines = "\n".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in table.lines
    )
    caption = f"<caption>{escape(table.title)}</caption>"
    body = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody>"
    return f'<div class="scroll" tabindex="0">\n<table>{caption}\n{body}\n</table>\n</div>'
