"""Figure 2: which tokens are drawn, how frequent they are, and what their place says of that."""

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from scipy.stats import spearmanr

from experiments import figure2
from experiments.command.record import read_records
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.figure2 import draw
from experiments.layout.figures import save_figure
from experiments.rows.plane import along_directions, with_neighbours
from experiments.spaces.corpus import Corpus, count_tokens, read_sentences, sample
from jaxgeom import reference
from jaxgeom.models import encode, load_encoder, load_tokenizer

GOLDEN = Path(__file__).parent / "golden"
WORDS = ("a", "man", "woman", "plays", "cuts", "the", "guitar", "red", "cat", "dog", "runs")
MODELS = ("bert", "roberta")
N_SENTENCES, MAX_TOKENS = 60, 400


class Run(NamedTuple):
    output: Path
    corpus: Path
    rows: list[dict[str, Any]]
    record: dict[str, Any]
    figure: Figure


def config(corpus: Path, output: Path, **options: Any) -> figure2.Config:
    models = tuple(str(GOLDEN / name) for name in MODELS)
    given = {"models": models, "corpus": corpus, "max_tokens": MAX_TOKENS, "output": output}
    given["states"] = ("random", "pretrained")
    return figure2.Config(**(given | options))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Both small models on sentences whose words are the rarer the later they stand in `WORDS`."""
    folder = tmp_path_factory.mktemp("figure2")
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, len(WORDS) + 1)
    lines = [" ".join(rng.choice(WORDS, 8, p=share / share.sum())) for _ in range(N_SENTENCES)]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
    drawn: list[Figure] = []

    def save(figure: Figure, output: Path, name: str) -> list[Path]:
        drawn.append(figure)
        return save_figure(figure, output, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.layout.figure2.save_figure", save)
        rows, record = figure2.run(config(folder / "corpus.txt", folder / "out"))
    return Run(folder / "out", folder / "corpus.txt", rows, record, drawn[0])


def test_a_row_is_a_model_in_a_state(run: Run) -> None:
    """Before the change comes first, the control last."""
    places = [(row["model"], row["state"]) for row in run.rows]
    assert places == [(model, state) for model in MODELS for state in ("pretrained", "random")]
    for row, given in zip(run.rows, run.record["inputs"], strict=True):
        assert 0 < row["n_tokens"] <= MAX_TOKENS
        assert row["n_tokens"] == given["n_tokens"] < given["n_corpus_tokens"]
        assert row["n_sentences"] < given["n_corpus_sentences"] == N_SENTENCES


def by_hand(plane: np.ndarray, ids: np.ndarray, logs: np.ndarray) -> float:
    """Spearman with the mean over the ten nearest other tokens, by a plain loop."""
    own, means = [], []
    for i, place in enumerate(plane):
        nearest = np.argsort(np.linalg.norm(plane - place, axis=1))[:101]
        others = [j for j in nearest if ids[j] != ids[i]][:10]
        if others:
            own.append(logs[i])
            means.append(logs[others].mean())
    return float(spearmanr(own, means).statistic)


@pytest.mark.parametrize("model", MODELS)
def test_the_numbers_are_those_of_the_sampled_tokens(run: Run, model: str) -> None:
    """Worked out anew: frequencies, the plane, and Spearman along its axes and all directions."""
    (row,) = (r for r in run.rows if (r["model"], r["state"]) == (model, "pretrained"))
    folder = GOLDEN / model
    tokenizer = load_tokenizer(folder)
    texts = run.corpus.read_text().splitlines()
    counts: dict[int, int] = {}
    for tokens in tokenizer.encode(texts):
        for token in tokens.ids[~tokens.special].tolist():
            counts[token] = counts.get(token, 0) + 1
    drawn = sample(count_tokens(tokenizer, texts), MAX_TOKENS, 128, 0)
    encoded = encode(load_encoder(folder), tokenizer, drawn)
    kept = ~encoded.special
    assert row["n_tokens"] == kept.sum()
    hidden = encoded.hidden[kept].astype(np.float64)
    fit = reference.pca(hidden, 2)
    plane = (hidden - fit.mean) @ fit.components.T
    logs = np.log([counts[token] for token in encoded.token_ids[kept].tolist()])
    angles = np.deg2rad(np.arange(180))
    rhos = [abs(spearmanr(plane @ [np.cos(a), np.sin(a)], logs).statistic) for a in angles]
    # 1e-3: float32 and float64 rank a few of 400 tokens differently
    assert row["frequency_rho_pc1"] == pytest.approx(rhos[0], abs=1e-3)
    assert row["frequency_rho_pc2"] == pytest.approx(rhos[90], abs=1e-3)
    assert row["frequency_rho_plane"] == pytest.approx(max(rhos), abs=1e-3)
    neighbours = by_hand(plane, encoded.token_ids[kept], logs)
    assert row["frequency_rho_neighbours"] == pytest.approx(neighbours, abs=5e-3)
    shares = [row["explained_variance_pc1"], row["explained_variance_pc2"]]
    np.testing.assert_allclose(shares, fit.explained_variance_ratio, rtol=1e-4)


def test_a_gradient_across_the_plane_is_found() -> None:
    """Counts that rise with the place along 30 degrees: rho is 1 there, less along the axes."""
    rng = np.random.default_rng(0)
    positions = rng.normal(size=(500, 2))
    along = positions @ [np.cos(np.pi / 6), np.sin(np.pi / 6)]
    counts = np.exp(along - along.min())
    rhos = along_directions(positions, counts)
    assert int(np.argmax(rhos)) == 30
    assert rhos[30] == pytest.approx(1)
    assert rhos[0] == pytest.approx(abs(spearmanr(positions[:, 0], along).statistic))
    assert rhos[90] == pytest.approx(abs(spearmanr(positions[:, 1], along).statistic))
    np.testing.assert_allclose(along_directions(-positions, counts), rhos)


def test_islands_of_alike_frequency_are_found_where_no_direction_orders_them() -> None:
    """Frequent tokens on a ring around rare ones: along any line, rho is next to nothing."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, 1000)
    ring = np.arange(1000) < 500
    radii = np.where(ring, 5, 1) + 0.3 * rng.normal(size=1000)
    positions = radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    token_ids = np.arange(1000)
    counts = np.where(ring, 1000, 10) + rng.integers(0, 9, 1000)
    assert along_directions(positions, counts).max() < 0.1
    assert with_neighbours(positions, token_ids, counts) > 0.7
    shuffled = rng.permutation(counts)
    assert abs(with_neighbours(positions, token_ids, shuffled)) < 0.1


def test_occurrences_of_one_token_are_no_neighbours() -> None:
    """Ten islands of one token each, their frequencies at random: nothing but themselves."""
    rng = np.random.default_rng(0)
    token_ids = np.repeat(np.arange(10), 300)
    positions = 100.0 * rng.normal(size=(10, 2))[token_ids] + rng.normal(size=(3000, 2))
    counts = rng.permutation(np.arange(1, 11))[token_ids]
    assert with_neighbours(positions, token_ids, counts) == 0


def test_ties_and_constants() -> None:
    positions = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    counts = np.array([1, 1, 5, 5])
    rhos = along_directions(positions, counts)
    assert rhos[0] == pytest.approx(spearmanr(positions[:, 0], counts).statistic)
    assert rhos[90] == 0  # all at one place
    assert not along_directions(positions, np.ones(4)).any()


def test_the_darker_a_token_the_more_frequent(run: Run) -> None:
    """All tokens of a row are drawn, and lightness falls with the count."""
    panels = [axis for axis in run.figure.axes if axis.collections and axis.get_title()]
    for axis, row in zip(panels, run.rows, strict=True):
        (points,) = axis.collections
        assert len(points.get_offsets()) == row["n_tokens"]
        points.update_scalarmappable()
        lightness = points.get_facecolors()[:, :3] @ [0.2126, 0.7152, 0.0722]
        assert spearmanr(lightness, points.get_array()).statistic < -0.999
        assert axis.get_title().startswith(row["model"])
        along, near = row["frequency_rho_plane"], row["frequency_rho_neighbours"]
        assert axis.get_title().endswith(f"|ρ| = {along:.2f}, neighbours: {near:.2f}")
        assert (
            axis.get_xlabel() == f"PC 1 ({100 * row['explained_variance_pc1']:.1f} % of variance)"
        )
        assert (
            axis.get_ylabel() == f"PC 2 ({100 * row['explained_variance_pc2']:.1f} % of variance)"
        )
    assert "occurrences" in run.figure.axes[-1].get_ylabel()  # the colour bar


def test_png_and_svg_show_it(run: Run) -> None:
    image = imread(run.output / "figure2.png")
    assert min(image.shape[:2]) > 1000  # two panels of 3 inches, 200 dots each
    coloured = np.ptp(image[..., :3], axis=-1) > 0.1
    assert coloured.mean() > 0.005
    svg = (run.output / "figure2.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(svg)
    assert "<!-- bert, random weights" in svg


def test_every_file_says_the_same(run: Run) -> None:
    stored = json.loads((run.output / "figure2.json").read_text())
    assert stored == {"schema": 1, "rows": run.rows}
    with (run.output / "figure2.csv").open(newline="") as text:
        cells = list(csv.DictReader(text))
    assert cells == [{k: str(v) for k, v in row.items()} for row in run.rows]
    lines = (run.output / "figure2.md").read_text().splitlines()[4:]
    for line, row in zip(lines, run.rows, strict=False):
        rhos = [f"{row[f'frequency_rho_{along}']:.2f}" for along in ("pc1", "pc2", "plane")]
        assert [cell.strip() for cell in line.split("|")[5:8]] == rhos
    assert (run.output / "figure2.tex").read_text().count(r"\toprule") == 1
    assert read_records(run.output / "run.json")["figure2"]["inputs"] == run.record["inputs"]


def test_a_second_run_encodes_nothing_and_a_missing_panel_is_a_gap(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.spaces.embeddings.encode", None)
    (tmp_path / "embeddings").symlink_to(run.output / "embeddings")
    again = config(run.corpus, tmp_path, states=("pretrained",), seeds=(0, 7))
    assert figure2.run(again).rows == [row for row in run.rows if row["state"] == "pretrained"]
    kept: list[Figure] = []
    monkeypatch.setattr(
        "experiments.layout.figure2.save_figure", lambda figure, *_: kept.append(figure) or []
    )
    panels = list(figure2._panels(config(run.corpus, run.output), "ours", Stages()))
    draw(panels[:3], run.rows[:3], tmp_path)
    visible = [axis.axison for axis in kept[0].axes[:4]]
    assert visible == [True, True, True, False]


def test_each_protocol_has_a_figure_and_a_table(run: Run, tmp_path: Path) -> None:
    """Both read this corpus and frozen models alike, so what they show is the same."""
    (tmp_path / "embeddings").symlink_to(run.output / "embeddings")
    both = figure2.run(config(run.corpus, tmp_path, protocol=("ours", "authors"))).rows
    assert both == run.rows + [row | {"protocol": "authors"} for row in run.rows]
    for name in ("figure2", "figure2_authors"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert (tmp_path / "figure2.tex").read_text().count(r"\toprule") == 2


def test_sentences_of_a_csv_and_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        ',Sentence,Language_code\n0,"One, ""two"".",en\n1,Three.,en\n', encoding="utf-8-sig"
    )
    (tmp_path / "a.txt").write_text("One.\r\n\n  Two\u2028too. \n", encoding="utf-8")
    assert read_sentences(tmp_path / "a.csv") == ['One, "two".', "Three."]
    assert read_sentences(tmp_path / "a.txt") == ["One.", "Two\u2028too."]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"One.", r"a.tsv must be named \*.csv or \*.txt"),
        ("a.csv", b"index,text\n0,One.\n", r"a.csv:1: the header must name Sentence, got index, t"),
        ("a.csv", b"", r"a.csv:1: the header must name Sentence"),
        ("a.csv", b"index,Sentence\n0,One.\n1,\n", r"a.csv:3: must fit the header and hold a sen"),
        ("a.csv", b"index,Sentence\n0,One.,two\n", r"a.csv:2: must fit the header and hold a sen"),
        ("a.csv", b'index,Sentence\n0,"One.\nTwo.\n', r"a.csv:2: unexpected end of data"),
        ("a.csv", b"index,Sentence\n", r"a.csv holds no sentences"),
        ("a.txt", b"\n \n", r"a.txt holds no sentences"),
        ("a.txt", b"One\xff.\n", r"a.txt: must be UTF-8 .*0xff"),
    ],
)
def test_a_corpus_that_cannot_be_read(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_sentences(tmp_path / name)


def test_tokens_are_counted_whole_and_without_special_ones() -> None:
    """A sentence far longer than any model reads, and one word of two tokens or more."""
    tokenizer = load_tokenizer(GOLDEN / "bert")
    (word,) = (tokens.ids[1:-1] for tokens in tokenizer.encode(["guitar"]))
    corpus = count_tokens(tokenizer, ["guitar " * 300, "guitar"])
    assert corpus.lengths.tolist() == [300 * word.size, word.size]
    assert corpus.counts.sum() == 301 * word.size
    assert {*np.flatnonzero(corpus.counts).tolist()} == {*word.tolist()}


def test_a_sample_is_seeded_without_repetition_and_small_enough() -> None:
    sentences = [str(i) for i in range(100)]
    corpus = Corpus(sentences, np.full(100, 7), np.zeros(0))
    drawn = sample(corpus, 50, 128, 0)
    assert len(drawn) == len({*drawn}) == 7
    assert drawn == sorted(drawn, key=int)
    assert drawn == sample(corpus, 50, 128, 0)
    assert drawn != sample(corpus, 50, 128, 1)
    assert len(sample(corpus, 50, 5, 0)) == 10  # five tokens of each remain
    assert sample(corpus, 1000, 128, 0) == sentences
    with pytest.raises(ValueError, match=r"--max-tokens must be at least the 7 .* got 6"):
        sample(corpus, 6, 128, 0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--models m --corpus c.txt --max-tokens 2", "--max-tokens must be at least 3, got 2"),
        ("--models m --corpus c.txt", "[Errno 2] No such file or directory: 'c.txt'"),
    ],
)
def test_a_users_mistake_is_one_line(
    flags: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(figure2.Config, figure2.run, name="figure2", args=flags.split()) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_the_wikipedia_file_is_read(data_dir: Path) -> None:
    sentences = read_sentences(data_dir / "wikipedia" / "english.csv")
    assert len(sentences) == 4951
    assert sentences[0] == "The Moon is Earth's only natural satellite."
