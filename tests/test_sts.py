"""STS-B readers: every layout, the Hub through a local fake, the real files, and broken ones."""

import csv
import re
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from jaxgeom.tasks import DataError, read_sts

GLUE_HEADER = ["index", "genre", "filename", "year", "old_index", "source1", "source2"]
GLUE_HEADER += ["sentence1", "sentence2", "score"]
PAIRS = [
    ("A man plays.", "A man is playing.", 4.75),
    ('He said "no".', '"No," he said.', 3.8),
    ("Naïve café — 東京", "One, two; three", 0.0),
]


def glue_line(i, sentence1, sentence2, score):
    return "\t".join([str(i), "news", "f", "2012", "1", "s", "s", sentence1, sentence2, str(score)])


def write_csv(path, pairs=PAIRS):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(pairs)
    return path


def write_glue(path, pairs=PAIRS):
    lines = ["\t".join(GLUE_HEADER), *(glue_line(i, *pair) for i, pair in enumerate(pairs))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_original(path, pairs=PAIRS):
    lines = [f"news\tf\t2012\t{i}\t{score}\t{a}\t{b}" for i, (a, b, score) in enumerate(pairs)]
    lines[-1] += "\thttp://source\tlicence"  # some lines of the original have more than seven
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


LAYOUTS = {"{}.csv": write_csv, "{}.tsv": write_glue, "sts-{}.csv": write_original}


def assert_pairs(read, pairs=PAIRS):
    assert list(zip(read.sentences1, read.sentences2, strict=True)) == [p[:2] for p in pairs]
    assert read.scores.dtype == np.float64
    assert_allclose(read.scores, [p[2] for p in pairs], rtol=1e-15)


# Sound sources ------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_every_layout_as_folder_and_as_file(tmp_path, layout, split):
    path = LAYOUTS[layout](tmp_path / layout.format(split))
    assert_pairs(read_sts(tmp_path, split=split))
    assert_pairs(read_sts(str(tmp_path), split=split))
    read = read_sts(path, split="train")  # a file is what it is
    assert_pairs(read)
    assert read.name == str(path)


def test_dev_is_the_default_split(tmp_path):
    write_csv(tmp_path / "train.csv", PAIRS[:1])
    write_csv(tmp_path / "dev.csv")
    assert_pairs(read_sts(tmp_path))


def test_a_csv_field_may_hold_commas_quotes_and_lines(tmp_path):
    pairs = [('One, "two"', "three\nfour\r\nfive", 1.5), ("six", "seven", 2.0)]
    assert_pairs(read_sts(write_csv(tmp_path / "dev.csv", pairs)), pairs)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends_and_a_byte_order_mark(tmp_path, newline):
    path = tmp_path / "dev.csv"
    path.write_bytes(("\ufeff" + newline.join(["A b.,C d.,1", "E f.,G h.,5"])).encode())
    assert_pairs(read_sts(path), [("A b.", "C d.", 1), ("E f.", "G h.", 5)])


def test_glue_columns_are_found_by_name(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("score\tsentence2\tsentence1\n2.5\tsecond\tfirst\n", encoding="utf-8")
    assert_pairs(read_sts(path), [("first", "second", 2.5)])


OPEN_QUOTE = [
    ("A b.", "C d.", 1.0),
    ("E f.", '"I open,', 2.0),
    ("lost", "lost too", 3.0),
    ("gone", 'and close"', 4.0),
    ("K l.", "M n.", 5.0),
]


@pytest.mark.parametrize("layout", ["{}.tsv", "sts-{}.csv"])
def test_quotes_are_plain_characters(tmp_path, layout):
    LAYOUTS[layout](tmp_path / layout.format("dev"), OPEN_QUOTE)
    assert_pairs(read_sts(tmp_path), OPEN_QUOTE)
    assert_pairs(read_sts(tmp_path, quoting="plain"), OPEN_QUOTE)


def test_default_quoting_swallows_lines(tmp_path):
    # the quotation mark opened in the second pair closes in the fourth: three pairs become one,
    # with the first sentence of the first of them and the score of the last
    write_glue(tmp_path / "dev.tsv", OPEN_QUOTE)
    read = read_sts(tmp_path, quoting="default")
    assert len(read.scores) == 3
    assert_array_equal(read.scores, [1, 4, 5])
    assert read.sentences1 == ["A b.", "E f.", "K l."]
    assert read.sentences2[1].startswith("I open,\t2.0\n")
    assert read.sentences2[1].endswith("and close")


def test_default_quoting_takes_enclosing_quotes_away(tmp_path):
    write_glue(tmp_path / "dev.tsv", [("A b.", '"No," he said.', 1.0)])
    assert read_sts(tmp_path, quoting="default").sentences2 == ["No, he said."]
    assert read_sts(tmp_path).sentences2 == ['"No," he said.']


# The Hub ------------------------------------------------------------------------------------------

HUB_ROWS = {
    "sentence-transformers/stsb": (None, "score", 1.0),
    "nyu-mll/glue": ("stsb", "label", 5.0),
    "mteb/stsbenchmark-sts": (None, "score", 5.0),
}


@pytest.fixture
def hub(monkeypatch):
    """A function that puts columns on a fake Hub; it returns the list of calls to it."""
    datasets = pytest.importorskip("datasets")

    def put(columns):
        calls = []

        def load_dataset(*args, **kwargs):
            calls.append((args, kwargs))
            return datasets.Dataset.from_dict(columns)

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return calls

    return put


@pytest.mark.parametrize("name", HUB_ROWS)
@pytest.mark.parametrize(("split", "theirs"), [("train", "train"), ("dev", "validation")])
def test_every_data_set_of_the_hub(hub, name, split, theirs):
    config, column, scale = HUB_ROWS[name]
    sentences1, sentences2, scores = zip(*PAIRS, strict=True)
    scores = [score * scale / 5 for score in scores]
    calls = hub({"sentence1": sentences1, "sentence2": sentences2, column: scores})
    read = read_sts(name, split=split)
    assert_pairs(read)
    assert read.name == f"{name}:{split}"
    assert calls == [((name, config), {"split": theirs})]


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        (
            "nyu-mll/glue",
            {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [1.0, -1.0]},
            "nyu-mll/glue:test, row 1: the score is -1, this split is unlabelled",
        ),
        (
            "sentence-transformers/stsb",
            {"sentence1": ["a"], "sentence2": ["c"], "score": [4.2]},
            "stsb:test, row 0: the score must be a number in 0..1, got 4.2",
        ),
        (
            "mteb/stsbenchmark-sts",
            {"sentence1": ["a"], "sentence2": [None], "score": [4.2]},
            "row 0: sentence2 is empty",
        ),
        (
            "nyu-mll/glue",
            {"sentence1": ["a"], "sentence2": ["b"], "score": [4.2]},
            "nyu-mll/glue must have the columns label",
        ),
    ],
)
def test_bad_rows_of_the_hub(hub, name, columns, message):
    hub(columns)
    with pytest.raises(DataError, match=re.escape(message)):
        read_sts(name, split="test")


def test_a_revision_of_the_hub(hub, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked = []

    def snapshot_download(name, **options):
        asked.append((name, options))
        return "folder"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    sentences1, sentences2, scores = zip(*PAIRS, strict=True)
    calls = hub({"sentence1": sentences1, "sentence2": sentences2, "label": scores})
    for read in (read_sts("nyu-mll/glue@v1"), read_sts("nyu-mll/glue", revision="v1")):
        assert_pairs(read)
        assert read.name == "nyu-mll/glue@v1:dev"
    assert calls == 2 * [(("folder", "stsb"), {"split": "validation"})]
    of_stsb = {"revision": "v1", "allow_patterns": ["README.md", "stsb/*"]}
    assert asked == 2 * [("nyu-mll/glue", {"repo_type": "dataset", **of_stsb})]


def test_only_the_hub_has_revisions(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "dev.csv")
    for source in ("mini-sts", ".", "dev.csv", "no/where"):
        with pytest.raises(
            DataError, match=f"a revision must be one of .* on the Hub, got 'v1' for {source}"
        ):
            read_sts(source, revision="v1")
    with pytest.raises(DataError, match="on the Hub, got 'v1' for mini-sts"):
        read_sts("mini-sts@v1")
    with pytest.raises(DataError, match="glue@v1 names a revision already, got revision='v1' too"):
        read_sts("nyu-mll/glue@v1", revision="v1")
    with pytest.raises(DataError, match="revision must be a branch, a tag or a commit, got '' for"):
        read_sts("nyu-mll/glue@")
    with pytest.raises(DataError, match=r"no/where@v1 is no file, no folder and none of the"):
        read_sts("no/where@v1")


def test_a_folder_with_an_at_sign_has_no_revision(monkeypatch, tmp_path):
    folder = tmp_path / "nyu-mll" / "glue@v1"
    folder.mkdir(parents=True)
    write_csv(folder / "dev.csv")
    monkeypatch.chdir(tmp_path)
    assert_pairs(read_sts("nyu-mll/glue@v1"))


@pytest.mark.parametrize("error", [ConnectionError("no route"), ValueError("no route")])
def test_a_hub_out_of_reach(monkeypatch, error):
    datasets = pytest.importorskip("datasets")

    def load_dataset(*args, **kwargs):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        DataError, match=r"nyu-mll/glue cannot be loaded .* no route.* name a folder"
    ):
        read_sts("nyu-mll/glue")


def test_the_hub_without_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxgeom\[hf\]'"):
        read_sts("nyu-mll/glue")


def test_files_need_no_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert_pairs(read_sts(write_csv(tmp_path / "dev.csv")))


def test_a_folder_comes_before_the_hub(monkeypatch, tmp_path):
    folder = tmp_path / "nyu-mll" / "glue"
    folder.mkdir(parents=True)
    write_csv(folder / "dev.csv")
    monkeypatch.chdir(tmp_path)
    assert_pairs(read_sts("nyu-mll/glue"))


# Broken sources -----------------------------------------------------------------------------------

GLUE = "\t".join(GLUE_HEADER)
BROKEN = {
    "dev.csv:2: expected 3 columns (sentence1, sentence2, score; no header), got 2": "a,b,1\nc,d\n",
    "dev.csv:3: expected 3 columns (sentence1, sentence2, score; no header), got 4": (
        'a,"b\nb",1\nc,d,e,2\n'
    ),
    "dev.csv:2: expected 3 columns (sentence1, sentence2, score; no header), got 0": "a,b,1\n\n",
    "dev.csv:1: the score must be a number in 0..5, got 'score'": "sentence1,sentence2,score\n",
    "dev.csv:2: the score must be a number in 0..5, got '5.1'": "a,b,5\nc,d,5.1\n",
    "dev.csv:1: the score must be a number in 0..5, got '-0.5'": "a,b,-0.5\n",
    "dev.csv:1: the score must be a number in 0..5, got 'nan'": "a,b,nan\n",
    "dev.csv:1: the score must be a number in 0..5, got ''": "a,b,\n",
    "dev.csv:2: the score is -1, this split is unlabelled": "a,b,1\nc,d,-1\n",
    "dev.csv:2: sentence1 is empty": "a,b,1\n ,d,2\n",
    "dev.csv:1: sentence2 is empty": "a,,1\n",
    "dev.csv:2: unexpected end of data": 'a,b,1\n"c,d,2\ne,f,3\n',
    "dev.csv holds no pairs": "",
    "dev.csv: scores must be on the scale 0..5, all are within 0..1": "a,b,0.5\n" * 20,
    "dev.tsv:3: expected 10 columns as in the header, got 9": (
        f"{GLUE}\n{glue_line(0, 'a', 'b', 1)}\n0\tg\tf\ty\to\ts\ts\ta\t1\n"
    ),
    "dev.tsv:1: the header must name score, got": GLUE.removesuffix("\tscore") + "\n",
    "dev.tsv:1: the header must name sentence1, sentence2, score, got []": "",
    "dev.tsv:2: sentence2 is empty": f"{GLUE}\n{glue_line(0, 'a', '  ', 1)}\n",
    "dev.tsv:2: the score must be a number in 0..5, got '7'": (
        f"{GLUE}\n{glue_line(0, 'a', 'b', 7)}"
    ),
    "dev.tsv holds no pairs": f"{GLUE}\n",
    "sts-dev.csv:2: expected 7 columns or more": "g\tf\ty\t1\t2.0\ta\tb\ng\tf\ty\t1\t2.0\ta\n",
    "sts-dev.csv:1: the score must be a number in 0..5, got 'x'": "g\tf\ty\t1\tx\ta\tb\n",
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_files_are_named_with_their_line(tmp_path, message):
    path = tmp_path / re.match(r"[\w.-]+", message)[0]
    path.write_text(BROKEN[message], encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}/{message}")):
        read_sts(tmp_path)


def test_few_or_whole_scores_are_taken_as_they_are(tmp_path):
    path = tmp_path / "dev.csv"
    path.write_text("a,b,0.5\n" * 19, encoding="utf-8")
    assert_array_equal(read_sts(path).scores, np.full(19, 0.5))
    path.write_text("a,b,0\nc,d,1\n" * 20, encoding="utf-8")
    assert_array_equal(read_sts(path).scores, np.tile([0, 1], 20))


def test_a_row_that_default_quoting_spoils_is_refused(tmp_path):
    # the first sentence's quotation mark closes in the next line: tabs are lost with the lines
    pairs = [('"A b.', "C d.", 1.0), ('E f."', "G h.", 2.0)]
    path = write_glue(tmp_path / "dev.tsv", [*pairs, ("I j.", '"never closed', 3.0)])
    assert len(read_sts(path).scores) == 3
    with pytest.raises(DataError, match=r":4: expected 10 columns .* got 9 .*row of 2 lines"):
        read_sts(path, quoting="default")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_that_are_not_utf8(tmp_path, layout):
    path = LAYOUTS[layout](tmp_path / layout.format("dev"))
    path.write_bytes(path.read_bytes() + "café".encode("latin-1"))
    line = 5 if path.suffix == ".tsv" else 4
    message = f"{path}:{line}: not UTF-8, byte 0xe9"
    with pytest.raises(DataError, match=re.escape(message)):
        read_sts(tmp_path)


def test_sources_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match=r"hold one of the files dev\.csv, dev\.tsv, sts-dev\.csv"):
        read_sts(tmp_path)
    with pytest.raises(DataError, match="no/where is no file, no folder and none of the data sets"):
        read_sts("no/where")
    (tmp_path / "dev.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"dev.json must be named \*.csv, \*.tsv or sts-\*.csv"):
        read_sts(tmp_path / "dev.json")


def test_unknown_options(tmp_path):
    with pytest.raises(
        ValueError, match="split must be one of 'train', 'dev', 'test', got 'validat"
    ):
        read_sts(tmp_path, split="validation")
    with pytest.raises(ValueError, match="quoting must be one of 'plain', 'default', got 'none'"):
        read_sts(tmp_path, quoting="none")


# The real files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "n"), [("train", 5749), ("dev", 1500), ("test", 1379)])
def test_the_real_benchmark(data_dir, tmp_path, split, n):
    read = read_sts(data_dir / "stsb", split=split)
    pairs = list(zip(read.sentences1, read.sentences2, read.scores.tolist(), strict=True))
    assert len(pairs) == n
    assert (read.scores.min(), read.scores.max()) == (0, 5)
    for layout in ("{}.tsv", "sts-{}.csv"):  # the same pairs in the layouts with tabs
        LAYOUTS[layout](tmp_path / layout.format(split), pairs)
        assert_pairs(read_sts(tmp_path / layout.format(split)), pairs)


def test_quotes_of_the_real_benchmark(data_dir):
    read = read_sts(data_dir / "stsb")
    assert read.sentences1[0] == "A man with a hard hat is dancing."
    assert sum('"' in a + b for a, b in zip(read.sentences1, read.sentences2, strict=True)) == 110
