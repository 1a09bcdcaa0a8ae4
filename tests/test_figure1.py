"""Figure 1: every curve is the isotropy of its layer, and what is drawn is what the files say."""

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread

import jaxgeom
from experiments import figure1
from experiments.command.record import read_records
from experiments.command.start import main
from experiments.layout.figure1 import draw
from experiments.layout.figures import COLOURS, save_figure
from jaxgeom import reference
from jaxgeom.models import encode, load_encoder, load_tokenizer

GOLDEN = Path(__file__).parent / "golden"
WORDS = ("a", "man", "woman", "plays", "cuts", "the", "guitar", "red", "cat", "dog", "runs")
N_PAIRS, LAYERS = 30, 4


class Run(NamedTuple):
    output: Path
    data: Path
    rows: list[dict[str, Any]]
    record: dict[str, Any]
    figure: Figure


def sentences(data: Path) -> list[str]:
    rows = [line.split(",") for line in data.read_text().splitlines()]
    return [row[0] for row in rows] + [row[1] for row in rows]


def config(run: Run, output: Path, **options: Any) -> figure1.Config:
    models = tuple(str(GOLDEN / name) for name in ("bert", "roberta"))
    given = {"states": ("random", "pretrained"), "models": models, "data": str(run.data)}
    return figure1.Config(**(given | {"output": output} | options))


def beside(run: Run, folder: Path) -> Path:
    """Return an output folder of its own that has the run's embeddings."""
    (folder / "embeddings").symlink_to(run.output / "embeddings")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Both small models, frozen and random, on thirty pairs; the figure as it was saved."""
    folder = tmp_path_factory.mktemp("figure1")
    rng = np.random.default_rng(0)
    pairs = [(rng.choice(WORDS, 5), rng.choice(WORDS, 7)) for _ in range(N_PAIRS)]
    (folder / "dev.csv").write_text("".join(f"{' '.join(a)},{' '.join(b)},1\n" for a, b in pairs))
    drawn: list[Figure] = []

    def save(figure: Figure, output: Path, name: str) -> list[Path]:
        drawn.append(figure)
        return save_figure(figure, output, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.layout.figure1.save_figure", save)
        empty = Run(folder / "out", folder / "dev.csv", [], {}, Figure())
        rows, record = figure1.run(config(empty, folder / "out"))
    return empty._replace(rows=rows, record=record, figure=drawn[0])


def curve(run: Run, model: str, state: str, kind: str) -> list[dict[str, Any]]:
    named = {"model": model, "state": state, "vectors": kind}
    return [row for row in run.rows if row.items() >= named.items()]


def test_the_rows_are_models_states_vectors_and_layers(run: Run) -> None:
    places = [(r["model"], r["state"], r["vectors"], r["layer"]) for r in run.rows]
    assert places == [
        (model, state, kind, layer)
        for model in ("bert", "roberta")
        for state in ("random", "pretrained")
        for kind in ("tokens", "cls")
        for layer in range(LAYERS)
    ]
    assert {row["n_vectors"] for row in run.rows if row["vectors"] == "cls"} == {2 * N_PAIRS}


@pytest.mark.parametrize("model", ["bert", "roberta"])
def test_the_numbers_are_the_isotropy_of_the_layer(run: Run, model: str) -> None:
    folder = GOLDEN / model
    encoded = encode(
        load_encoder(folder), load_tokenizer(folder), sentences(run.data), layers="all"
    )
    firsts = np.append(True, np.diff(encoded.sentence_ids) > 0)
    for kind, chosen in (("tokens", ~encoded.special), ("cls", firsts)):
        for row, hidden in zip(curve(run, model, "pretrained", kind), encoded.hidden, strict=True):
            assert row["n_vectors"] == chosen.sum()
            logs = [row["log_isotropy"], row["log_isotropy_low"], row["log_isotropy_high"]]
            ours = jaxgeom.isotropy(hidden[chosen])
            np.testing.assert_allclose(np.exp(logs), [ours.heavier, ours.low, ours.high], rtol=1e-5)
            oracle = reference.isotropy(hidden[chosen].astype(np.float64))
            # the bound of log I with each side's own directions
            np.testing.assert_allclose(
                logs, np.log([oracle.heavier, oracle.low, oracle.high]), atol=2e-3
            )


def test_layer_0_is_the_embedding_output(run: Run) -> None:
    """There all CLS vectors are one vector w: F is n e^|w| along it and n across it."""
    for model in ("bert", "roberta"):
        folder = GOLDEN / model
        encoded = encode(load_encoder(folder), load_tokenizer(folder), ["rain"], layers="all")
        row = curve(run, model, "pretrained", "cls")[0]
        assert row["log_isotropy"] == pytest.approx(-np.linalg.norm(encoded.hidden[0, 0]), abs=1e-4)


def test_what_is_drawn_is_what_was_measured(run: Run) -> None:
    for axis, model in zip(run.figure.axes, ("bert", "roberta"), strict=True):
        assert axis.get_title() == model
        assert "layer" in axis.get_xlabel()
        expected = [
            ("random", "tokens", "-", 0.9, "all tokens, random weights"),
            ("pretrained", "tokens", "-", 1.8, "all tokens, pre-trained"),
            ("pretrained", "cls", "--", 1.8, "CLS, pre-trained"),
        ]
        for line, (state, kind, dashes, width, label) in zip(axis.lines, expected, strict=True):
            values = [-row["log_isotropy"] for row in curve(run, model, state, kind)]
            np.testing.assert_array_equal(line.get_ydata(), values)
            np.testing.assert_array_equal(line.get_xdata(), range(LAYERS))
            assert (line.get_linestyle(), line.get_linewidth()) == (dashes, width)
            assert to_hex(line.get_color()).upper() == COLOURS[state]
            assert line.get_label() == label
        bottom, top = axis.get_ylim()
        assert bottom == 0
        assert top > max(-row["log_isotropy"] for row in run.rows)  # of both panels: one scale
    assert "nats" in run.figure.axes[0].get_ylabel()
    (legend,) = run.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [label for *_, label in expected]


@pytest.mark.parametrize("models", [("bert",), ("bert", "roberta")])
def test_nothing_is_cut_off(
    run: Run, models: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With three states, under one panel and under two: legend and axis names lie in the figure."""
    drawn: list[Figure] = []
    monkeypatch.setattr(
        "experiments.layout.figure1.save_figure", lambda figure, *_: drawn.append(figure)
    )
    given = [row for row in run.rows if row["model"] in models]
    tuned = [row | {"state": "finetuned"} for row in given if row["state"] == "pretrained"]
    draw(sorted(given + tuned, key=lambda row: row["model"]), tmp_path)
    (figure,) = drawn
    figure.draw_without_rendering()
    names = [axis.yaxis.label for axis in figure.axes] + [axis.title for axis in figure.axes]
    for artist in [*figure.legends, *names]:
        extent = artist.get_window_extent()
        assert extent.x0 >= 0, artist
        assert extent.x1 <= figure.bbox.x1, artist
        assert extent.y0 >= 0, artist
        assert extent.y1 <= figure.bbox.y1, artist
    assert len(figure.legends[0].get_texts()) == 5


def test_png_and_svg_show_it(run: Run) -> None:
    image = imread(run.output / "figure1.png")
    height, width, _ = image.shape
    assert width > 1600  # two panels of 4.2 inches, 200 dots each
    assert height > 600
    for state in ("random", "pretrained"):
        colour = [int(COLOURS[state][i : i + 2], 16) / 255 for i in (1, 3, 5)]
        assert (np.abs(image[..., :3] - colour).max(axis=-1) < 0.01).sum() > 100
    svg = (run.output / "figure1.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(svg)
    for label in ("CLS, pre-trained", "all tokens, random weights", "roberta", "−ln I(W)"):
        assert f"<!-- {label}" in svg


def test_every_file_says_the_same(run: Run) -> None:
    stored = json.loads((run.output / "figure1.json").read_text())
    assert stored == {"schema": 1, "rows": run.rows}
    with (run.output / "figure1.csv").open(newline="") as text:
        cells = list(csv.DictReader(text))
    assert cells == [{k: str(v) for k, v in row.items()} for row in run.rows]
    markdown = (run.output / "figure1.md").read_text()
    for table, model in zip(markdown.split("### ")[1:], ("bert", "roberta"), strict=True):
        lines = [re.split(r"\s*\|\s*", line)[1:-1] for line in table.splitlines() if "|" in line]
        assert lines[0][3:] == ["all tokens, pretrained", "CLS, pretrained"]
        for layer, line in enumerate(lines[2:]):
            for cell, kind in zip(line[3:], ("tokens", "cls"), strict=True):
                row = curve(run, model, "pretrained", kind)[layer]
                value, low, high = (row[f"log_isotropy{end}"] for end in ("", "_low", "_high"))
                assert cell == f"{-value:.2f} [{-high:.2f}, {-low:.2f}]"
        tokens = curve(run, model, "pretrained", "tokens")
        pairs = zip(tokens, curve(run, model, "pretrained", "cls"), strict=True)
        n_less = sum(cls["log_isotropy"] < all_["log_isotropy"] for all_, cls in pairs)
        assert f"pretrained: CLS less isotropic than all tokens in {n_less} of 4 layers." in table
        assert f"all tokens: {tokens[0]['n_vectors']:,} vectors; CLS: 60 vectors." in table
    assert (run.output / "figure1.tex").read_text().count(r"\toprule") == 2


def test_the_record_counts(run: Run) -> None:
    assert read_records(run.output / "run.json")["figure1"]["inputs"] == run.record["inputs"]
    first = run.record["inputs"][0]
    assert (first["model"], first["state"], first["n_layers"]) == ("bert", "random", LAYERS)
    assert first["n_sentences"] == 2 * N_PAIRS
    assert set(run.record["seconds"]) == {"read", "encode", "isotropy", "figure"}


def test_a_second_run_encodes_nothing_and_only_the_first_seed_is_drawn(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.spaces.embeddings.encode", None)
    again = figure1.run(config(run, beside(run, tmp_path), seeds=(0, 1)))
    assert again.rows == run.rows


def test_the_authors_protocol_is_one_choice_of_signs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.spaces.embeddings.encode", None)
    drawn: list[Figure] = []
    monkeypatch.setattr(
        "experiments.layout.figure1.save_figure", lambda figure, *_: drawn.append(figure)
    )
    chosen = config(run, beside(run, tmp_path), protocol=("ours", "authors"))
    rows = figure1.run(chosen).rows
    assert [row for row in rows if row["protocol"] == "ours"] == run.rows
    titles = [axis.get_title() for axis in drawn[0].axes]
    assert titles == [
        f"{m}, protocol {p}" for p in ("ours", "authors") for m in ("bert", "roberta")
    ]
    authors = [row for row in rows if row["protocol"] == "authors"]
    for theirs, ours in zip(authors, run.rows, strict=True):
        assert (theirs["log_isotropy_low"], theirs["log_isotropy_high"]) == (None, None)
        # each side has its own float of one sum, hence the bound of log I
        assert ours["log_isotropy_low"] - 2e-3 <= theirs["log_isotropy"]
        assert theirs["log_isotropy"] <= ours["log_isotropy_high"] + 2e-3
    legend = (tmp_path / "figure1.md").read_text().splitlines()[-1]
    assert re.match(r"Protocol ours: .* Protocol authors: .* one choice of many", legend)


def test_a_log_beyond_floats_is_a_number() -> None:
    """I(W) of this is e^-1500: nothing, in any float."""
    vectors = np.array([[1500.0, 0.0], [1500.0, 0.0]], np.float32)
    for ops in (jaxgeom, reference):
        for protocol in ("ours", "authors"):
            log = figure1.log_isotropy(ops, vectors, protocol)[0]
            assert log == pytest.approx(-1500, rel=1e-6)


def test_the_command(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--models", str(GOLDEN / "bert"), "--data", str(run.data), "--states", "pretrained"]
    flags += ["--backend", "numpy", "--output", str(tmp_path / "out")]
    assert main(figure1.Config, figure1.run, name="figure1", args=flags) == 0
    printed = capsys.readouterr()
    assert "CLS: 60 vectors" in printed.out
    assert "The study itself" not in printed.out
    with pytest.raises(ValueError, match=r"^--models must name an encoder, got none"):
        figure1.run(figure1.Config())
    rows = json.loads((tmp_path / "out" / "figure1.json").read_text())["rows"]
    ours = [row for row in run.rows if (row["model"], row["state"]) == ("bert", "pretrained")]
    for oracle, row in zip(rows, ours, strict=True):
        assert row["log_isotropy"] == pytest.approx(oracle["log_isotropy"], abs=2e-3)


def test_the_cls_curve_of_sts_has_3000_vectors(data_dir: Path, tmp_path: Path) -> None:
    rows = figure1.run(
        figure1.Config(
            models=(str(GOLDEN / "roberta"),),
            data=str(data_dir / "stsb"),
            states=("pretrained",),
            output=tmp_path,
        )
    ).rows
    assert {row["n_vectors"] for row in rows if row["vectors"] == "cls"} == {3000}
    assert {row["layer"] for row in rows} == set(range(LAYERS))


def test_matplotlib_is_an_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"figures need pip install 'jaxgeom\[experiments\]'"):
        draw([], tmp_path)
