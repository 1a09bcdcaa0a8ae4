"""One run of everything on a random RoBERTa of 32 features: the report, its cells, its reuse."""

import base64
import json
import re
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tiny_study import ROBERTA, D, tables_in, write_pairs

from experiments import all as everything
from experiments import curves, directions, figure1, figure2, findings, table1, table2
from experiments.command.options import of_preset
from experiments.command.start import main
from experiments.layout.findings import answer_of
from experiments.layout.tables import correlation, isotropy
from experiments.spaces.checkpoints import sources
from experiments.spaces.cost import DEVICES, need_of
from jaxgeom import study

SEEDS = ("0", "1")
STATES = ("random", "pretrained", "finetuned")
NAMES = ("figure1", "table1", "table2", "curves", "directions", "figure2", "findings")
FIGURES = (
    "figure1",
    "figure2",
    "figure2_authors",
    "curves_tiny",
    "curves_tiny_authors",
    "directions_tiny",
)
LAYERS, PAIRS = 4, 30


class Reader(HTMLParser):
    """Takes the report apart: tables by section, images, whatever a browser would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.section = ""
        self.tables: dict[str, list[list[list[str]]]] = {}
        self.captions: list[tuple[str, str]] = []  # section and text
        self.images: list[dict[str, str]] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []
        self.within: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.within.append(tag)
        self.addresses += [given[name] for name in ("src", "href", "srcset") if name in given]
        if tag == "section":
            self.section = given["id"]
            self.tables[self.section] = []
        elif tag == "table":
            self.tables[self.section].append([])
        elif tag == "tr":
            self.tables[self.section][-1].append([])
        elif tag in ("td", "th"):
            self.tables[self.section][-1][-1].append("")
        elif tag == "img":
            self.images.append(given)

    def handle_endtag(self, tag: str) -> None:
        while self.within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.within and self.within[-1] in ("td", "th"):
            self.tables[self.section][-1][-1][-1] += data
        if self.within and self.within[-1] == "caption":
            self.captions.append((self.section, data))


class Run(NamedTuple):
    folder: Path  # of the data
    output: Path
    printed: str
    report: Reader

    def rows(self, name: str) -> list[dict[str, Any]]:
        return json.loads((self.output / f"{name}.json").read_text())["rows"]


def flags(folder: Path, output: Path, *more: str) -> list[str]:
    given = ["--models", f"tiny={ROBERTA}", "--data", str(folder), "--output", str(output)]
    given += ["--n-clusters", "3", "--n-directions", "2", "--max-length", "16"]
    given += ["--seeds", *SEEDS, "--epochs", "1", "--batch-size", "12", "--lr", "1e-3"]
    return [*given, "--backend", "numpy", *more]  # the kernels would be compiled for a minute


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The command, as a user types it, on pairs and a corpus of five words."""
    folder = write_pairs(tmp_path_factory.mktemp("all"))
    lines = (folder / "dev.csv").read_text().splitlines()
    (folder / "train.csv").write_text("\n".join(lines[:24]) + "\n")
    (folder / "corpus.txt").write_text("\n".join(line.split(",")[0] for line in lines) + "\n")
    output, printed = folder / "report", folder / "printed"
    with pytest.MonkeyPatch.context() as patch, printed.open("w") as console:
        patch.setattr("sys.stdout", console)
        given = flags(folder, output, "--corpus", str(folder / "corpus.txt"))
        assert main(everything.Config, everything.run, name="all", args=given) == 0
    report = Reader()
    report.feed((output / "report.html").read_text(encoding="utf-8"))
    return Run(folder, output, printed.read_text(), report)


def test_the_report_holds_everything_itself(run: Run) -> None:
    """Nothing is loaded, nothing runs; each figure is one image that says what it shows."""
    assert [image["src"].partition(",")[0] for image in run.report.images] == [
        "data:image/png;base64"
    ] * len(FIGURES)
    for image, name in zip(run.report.images, sorted(FIGURES, key=order_of), strict=True):
        content = base64.b64decode(image["src"].partition(",")[2])
        assert content == (run.output / f"{name}.png").read_bytes()
        assert len(image["alt"]) > 40
        assert "tiny" in image["alt"]
    assert not {"script", "link", "iframe", "object", "embed", "video"} & {*run.report.tags}
    others = [a for a in run.report.addresses if not a.startswith("data:image/png;base64,")]
    assert [a for a in others if not a.startswith("#")] == []
    html = (run.output / "report.html").read_text()
    style = re.search(r"<style>(.*?)</style>", html, re.S)[1]
    assert not re.search(r"url\(|@import|@font-face", style)
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style
    assert {a[1:] for a in others} == {*run.report.tables}  # every link of the contents arrives


def order_of(name: str) -> int:
    """Return where a figure stands in the report: with its section."""
    return ("figure1", "figure2", "curves", "directions").index(name.split("_", maxsplit=1)[0])


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_that_of_the_experiments_own_table(run: Run, name: str) -> None:
    """Each experiment's own tests hold NAME.md against NAME.json."""
    stripped = [
        [[cell.strip() for cell in line] for line in table] for table in run.report.tables[name]
    ]
    tables = cells_in((run.output / f"{name}.md").read_text())
    assert stripped == [[table[0], *table[2:]] for table in tables]
    assert len(stripped) >= 1


def cells_in(markdown: str) -> list[list[list[str]]]:
    """Return the cells of each table; a bar within a cell is escaped there."""
    tables = tables_in(markdown.replace(r"\|", "\0"))
    return [[[cell.replace("\0", "|") for cell in line] for line in table] for table in tables]


def every_table(report: Reader) -> list[list[list[str]]]:
    return [table for tables in report.tables.values() for table in tables]


def test_cells_are_the_numbers_of_the_json(run: Run) -> None:
    """Worked out anew from the files, over both seeds, for the tables of every kind."""
    tables = dict(zip(run.report.captions, every_table(run.report), strict=True))
    for state in STATES:
        for protocol in ("ours", "authors"):
            chosen = [
                row
                for row in run.rows("table1")
                if (row["state"], row["protocol"]) == (state, protocol)
            ]
            size = f"{chosen[0]['n_tokens']} tokens"
            title = f"tiny · {state} · seeds 0, 1 · {size} · protocol {protocol}"
            cells = {label.strip(): cells for label, *cells in tables["table1", title]}
            settings = [*study.SETTINGS, "cls"]
            for field, label, face in (
                ("spearman", "Perf.", correlation),
                ("isotropy", "Isotropy", isotropy),
            ):
                for setting, cell in zip(settings, cells[label], strict=True):
                    pair = [row[field] for row in chosen if row["setting"] == setting]
                    mean, deviation = statistics.mean(pair), statistics.stdev(pair)
                    assert cell == f"{face(mean)} ± {face(deviation)}"
    layers = tables["figure1", "tiny · −ln I · seed 0 · protocol authors"]
    for row in run.rows("figure1"):
        if row["protocol"] == "authors":
            place = [f"{'CLS' if row['vectors'] == 'cls' else 'all tokens'}, {row['state']}"]
            column = layers[0].index(*place)
            assert layers[1 + row["layer"]][column] == f"{-row['log_isotropy']:.2f}"
    lines = [line for table in run.report.tables["figure2"] for line in table[1:]]
    for line, row in zip(lines, run.rows("figure2"), strict=True):
        assert line[1] == f"{row['n_tokens']:,}"
        assert line[7:] == [f"{row['angle']}°", f"{row['frequency_rho_neighbours']:.2f}"]
    answers = [line[-1] for table in run.report.tables["findings"] for line in table[1:]]
    assert answers == [answer_of(row) for row in run.rows("findings")]


def test_the_markdown_report_has_the_same_tables_and_figures(run: Run) -> None:
    markdown = (run.output / "report.md").read_text()
    html = [
        [[c.strip() for c in line] for line in t] for ts in run.report.tables.values() for t in ts
    ]
    assert [[table[0], *table[2:]] for table in cells_in(markdown)] == html
    images = re.findall(r"!\[(.+?)\]\((.+?)\)", markdown)
    assert [(text, name.removesuffix(".png")) for text, name in images] == [
        (image["alt"], name)
        for image, name in zip(run.report.images, sorted(FIGURES, key=order_of), strict=True)
    ]


def test_every_row_says_its_protocol_and_both_stand_side_by_side(run: Run) -> None:
    for name in NAMES:
        protocols = {row["protocol"] for row in run.rows(name)}
        assert protocols == {"ours", "authors"}, name
    keys = ("state", "setting", "seed")
    for name in ("table1", "table2"):
        by_protocol: dict[str, list] = {"ours": [], "authors": []}
        for row in run.rows(name):
            by_protocol[row["protocol"]].append([row[key] for key in keys])
        assert by_protocol["ours"] == by_protocol["authors"]
    assert {path.name for path in (run.output / "labels/authors").iterdir()} == {
        f"tiny-{state}-{seed}.npy" for state in STATES for seed in SEEDS
    }


def keys_of(run: Run) -> dict[Path, dict[str, Any]]:
    """Return what shapes each cached entry."""
    paths = run.output.glob("embeddings/*/key.json")
    return {path.parent: json.loads(path.read_text()) for path in paths}


def test_each_model_is_encoded_once(run: Run) -> None:
    """All layers of each state for the first seed, the last one alone for the others."""
    layers: dict[str, list[str]] = {}
    for key in keys_of(run).values():
        layers.setdefault(key["sentences"], []).append(key["layers"])
    of_pairs, of_corpus = sorted(map(sorted, layers.values()))
    assert of_pairs == ["all"] * len(STATES) + ["last"] * 2  # pre-trained weights have no seed
    assert of_corpus == ["last"] * len(STATES)
    assert len([*run.output.glob("finetuned/*/model")]) == len(SEEDS)


def test_layer_0_is_the_embedding_output_and_cls_is_one_a_sentence(run: Run) -> None:
    rows = [row for row in run.rows("figure1") if row["protocol"] == "ours"]
    assert {row["n_vectors"] for row in rows if row["vectors"] == "cls"} == {2 * PAIRS}
    assert {row["layer"] for row in rows} == set(range(LAYERS))
    row = next(r for r in rows if (r["state"], r["vectors"]) == ("random", "cls"))
    (entry,) = (
        path
        for path, key in keys_of(run).items()
        if key["weights"].get("random") == 0 and key["layers"] == "all"
    )
    # before attention every CLS is one vector w: F is n e^|w| along it, and n across it
    w = np.load(entry / "hidden.npy", mmap_mode="r")[0, 0]
    assert row["log_isotropy"] == pytest.approx(-np.linalg.norm(w), abs=1e-4)
    assert f"CLS: {2 * PAIRS} vectors" in run.printed


def test_the_curve_meets_both_tables(run: Run) -> None:
    """At k directions Table 1's Global, at each m Table 2's; isotropy to 1e-3, Spearman to 0.01."""
    points = {
        (row["state"], row["seed"], row["which"], row["n_removed"]): row
        for row in run.rows("curves")
        if row["protocol"] == "ours"
    }
    tables = [row | {"which": "top", "k": 2} for row in run.rows("table1")]
    tables += [row | {"which": "least", "k": row["n_least"]} for row in run.rows("table2")]
    chosen = [r for r in tables if r["setting"] == "global" and r["protocol"] == "ours"]
    assert len(chosen) == 3 * len(STATES) * len(SEEDS)
    for row in chosen:
        point = points[row["state"], row["seed"], row["which"], row["k"]]
        assert point["spearman"] == pytest.approx(row["spearman"], abs=0.01)
        for field in ("isotropy", "isotropy_low", "isotropy_high"):
            assert point[field] == pytest.approx(row[field], rel=1e-3)


@pytest.mark.parametrize(
    "experiment", [figure1, table1, table2, curves, directions, figure2], ids=lambda m: m.__name__
)
def test_alone_each_experiment_gives_the_reports_numbers(
    run: Run, experiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of its own that has the embeddings and the models, nothing else."""
    monkeypatch.setattr("experiments.spaces.embeddings.encode", None)
    monkeypatch.setattr("experiments.spaces.finetuned.finetune", None)
    for name in ("embeddings", "finetuned"):
        (tmp_path / name).symlink_to(run.output / name)
    name = experiment.__name__.rpartition(".")[2]
    more = ["--protocol", "ours", "authors"]
    more += ["--corpus", str(run.folder / "corpus.txt")] if experiment is figure2 else []
    args = flags(run.folder, tmp_path, *more)
    assert main(experiment.Config, experiment.run, name=name, args=args) == 0
    assert json.loads((tmp_path / f"{name}.json").read_text())["rows"] == run.rows(name)


def test_the_record_is_of_every_experiment(run: Run) -> None:
    records = json.loads((run.output / "run.json").read_text())["experiments"]
    assert {*records} == {*NAMES, "all"}
    assert {*records["all"]["seconds"]} == {*NAMES}
    assert records["table1"]["options"]["n_clusters"] == 3
    assert {"read", "train", "encode", "isotropy", "figure"} == {*records["figure1"]["seconds"]}
    times = run.report.tables["run"][0]
    assert [line[0] for line in times[1:]] == [*NAMES, "together"]
    assert times[1][1] == f"{records['all']['seconds']['figure1']:.1f} s"
    spaces = {line[0]: line[1:] for line in run.report.tables["run"][1][1:]}
    (space,) = (
        given
        for given in records["table1"]["inputs"]
        if (given["state"], given["seed"], given["protocol"]) == ("finetuned", 1, "authors")
    )
    assert space["n_pairs"] == PAIRS
    assert space["n_tokens"] == run.rows("table1")[0]["n_tokens"]
    counts = [str(space[name]) for name in ("n_pairs", "n_tokens", "n_truncated")]
    assert spaces["tiny finetuned seed 1, authors"] == counts


def test_the_need_is_printed_before_it_starts_and_is_what_was_needed(run: Run) -> None:
    config = everything.Config(
        models=(f"tiny={ROBERTA}",), data=str(run.folder), seeds=(0, 1), max_length=16
    )
    (source,) = sources(config.models)
    need = need_of(source, config)
    lines = run.printed.splitlines()
    assert lines[0].startswith(f"tiny: {need.n_tokens} tokens of {2 * PAIRS} sentences")
    assert lines[1].startswith("counted: ")
    for line, (machine, rate) in zip(lines[2:4], DEVICES.items(), strict=True):
        assert re.fullmatch(rf"estimate: \d.* on {machine}, at {rate / 1e9:,.0f} GFLOP/s .*", line)
    assert "GB of embeddings" in lines[4]
    stored = [
        np.load(path, mmap_mode="r").nbytes
        for path in run.output.glob("embeddings/*/hidden.npy")
        if np.load(path, mmap_mode="r").shape[-2] == need.n_tokens
    ]
    assert need.embeddings_bytes == sum(stored)
    assert (need.n_layers, need.n_features) == (LAYERS, D)
    assert any("Before the run" in text and lines[1] in text for text in run.report.text)


def test_a_full_disk_stops_before_anything_is_encoded(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = everything.shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(everything.shutil, "disk_usage", lambda _: usage)
    args = flags(run.folder, tmp_path / "out")
    assert main(everything.Config, everything.run, name="all", args=args) == 2
    assert re.search(
        r"^error: .*out: .* GB are needed, .* 1e-08 GB are free", capsys.readouterr().err
    )
    assert [*(tmp_path / "out").iterdir()] == []


def test_models_must_be_named() -> None:
    with pytest.raises(ValueError, match=r"^--models must name one or more"):
        everything.run(everything.Config())


def test_the_preset_is_the_study() -> None:
    config = of_preset(everything.Config, "paper")
    assert config.models == ("bert-base-uncased", "roberta-base")
    assert (config.split, config.seeds) == ("dev", (0, 1, 2, 3, 4))
    assert (config.n_clusters, config.n_directions) == (27, 12)
    assert (config.lr, config.epochs, config.batch_size) == (7e-5, 3, 32)
    assert config.states == STATES
    assert config.protocol == ("ours", "authors")
    for experiment in (figure1, table1, table2, curves, directions, figure2):
        options = everything.options_of(experiment, config)
        assert (options.seeds, options.protocol) == (config.seeds, config.protocol)
    assert everything.options_of(table2, config).labels == config.output / "labels"
    assert findings.SOURCES == ("table1", "table2", "figure1", "figure2", "directions")
