"""Models and STS-B over the Hub's own protocol, from a server on the loopback interface.

Three processes share one cache, since the Hub's settings are read once, on import: one that finds
it empty, one a little later, and one without a network.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pytest
from hub_server import Hub, Repo, serve
from pyarrow import parquet

from jaxgeom.models import load_encoder, load_tokenizer

GOLDEN = Path(__file__).parent / "golden"
STS = "sentence-transformers/stsb"
ASK = """
import json, sys
from jaxgeom.models import ModelError, resolve_model
from jaxgeom.tasks.sts import DataError, read_sts
for name in sys.argv[1:]:
    try:
        if name.startswith("sentence-transformers/stsb"):
            pairs = read_sts(name)
            answer = [pairs.sentences1, pairs.sentences2, pairs.scores.tolist(), pairs.name]
        else:
            answer = str(resolve_model(name))
    except (ModelError, DataError) as error:
        answer = "error: " + str(error)
    print(json.dumps(answer))
"""


class Run(NamedTuple):
    """What one process was answered, and what it took from the server."""

    answers: dict[str, Any]
    fetched: list[str]  # paths of files whose contents were sent
    ranges: list[str]  # asked for, where not whole files were
    n_requests: int

    def of(self, name: str) -> list[str]:
        """Return the names of the files fetched from a repository."""
        return [path.rpartition("/")[2] for path in self.fetched if f"/{name}/" in path]


class Runs(NamedTuple):
    """The three processes, in their order."""

    first: Run
    second: Run
    offline: Run


def model_files(size: int | None = None) -> dict[str, bytes]:
    """Return the small BERT, or weights of `size` bytes that are no weights, and other formats."""
    files = {path.name: path.read_bytes() for path in (GOLDEN / "bert").iterdir()}
    if size is not None:
        files["model.safetensors"] = np.random.default_rng(0).bytes(size)
    return files | {"pytorch_model.bin": b"not wanted", "README.md": b"neither"}


OLD = Repo(model_files() | {"config.json": model_files()["config.json"].replace(b"{", b"{\n", 1)})


def table(scores: list[float]) -> bytes:
    """Return one split of STS-B as the Hub stores it."""
    columns = {
        "sentence1": [f"A man plays {i}." for i in range(len(scores))],
        "sentence2": [f"A man sings {i}." for i in range(len(scores))],
        "score": scores,
    }
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def data_files(validation: list[float]) -> dict[str, bytes]:
    """Return the data set with these scores of its middle split."""
    splits = {"train": [0.0], "validation": validation, "test": [0.4, 0.6]}
    data = {f"data/{split}-00000-of-00001.parquet": table(s) for split, s in splits.items()}
    return {"README.md": b"---\nlicense: other\n---\n", **data}


def repositories() -> dict[str, Repo]:
    """Return what the server has, faults included."""
    old_data = Repo(data_files([0.0, 0.4]))
    return {
        "models/org/whole": Repo(model_files()),
        "models/org/moving": Repo(model_files()),
        "models/org/tagged": Repo(model_files(), others={"v1": OLD}),
        "models/org/gone": Repo(model_files(), gone={"model.safetensors"}),
        "models/org/branch": Repo(model_files(), branches=("develop",)),
        "models/org/large": Repo(model_files(24_000_000), cut={"model.safetensors": 1}),
        "models/org/cut": Repo(model_files(), cut={"model.safetensors": 99}),
        f"datasets/{STS}": Repo(data_files([0.2, 1.0, 0.55]), others={"v1": old_data}),
    }


def ask(hub: Hub, home: Path, *names: str, **environment: str) -> Run:
    """Resolve names in a process of its own."""
    hub.log.clear()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    settings = {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(home),
        "NO_PROXY": "127.0.0.1,localhost",
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK, *names],
        env=kept | settings | environment,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    ranges = [request.range for request in hub.log if request.range]
    return Run(dict(zip(names, answers, strict=True)), hub.fetched(), ranges, len(hub.log))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Run the three processes; between the first two the connection recovers, and a model moves."""
    home = tmp_path_factory.mktemp("hub")
    models = ("org/whole", "org/moving", "org/cut", "org/tagged@v1", "org/tagged")
    with serve(repositories()) as hub:
        faults = ("org/gone", "org/branch", "org/large", "org/nobody")
        revisions = (f"org/tagged@{OLD.commit}", "org/tagged@v9", f"{STS}@v9", f"{STS}@v1")
        first = ask(hub, home, *models, *faults, *revisions, STS)
        hub.repos["models/org/cut"].cut.clear()
        moving = hub.repos["models/org/moving"].files
        moving["config.json"] = moving["config.json"].replace(b"{", b"{ ", 1)
        second = ask(hub, home, *models, STS)
        offline = ask(
            hub, home, *models, "org/gone", "org/tagged@v9", f"{STS}@v1", STS, HF_HUB_OFFLINE="1"
        )
        yield Runs(first, second, offline)


def test_a_model_is_downloaded_and_can_be_read(runs: Runs) -> None:
    folder = Path(runs.first.answers["org/whole"])
    wanted = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(runs.first.of("org/whole")) == sorted(path.name for path in folder.iterdir())
    assert sorted(runs.first.of("org/whole")) == wanted  # no other library's weights
    for name in wanted:
        assert (folder / name).read_bytes() == (GOLDEN / "bert" / name).read_bytes()
    assert load_encoder(folder).config.hidden_size == 32
    assert load_tokenizer(folder).encode(["A man plays."])


def test_a_second_run_finds_it_in_the_cache(runs: Runs) -> None:
    assert runs.second.answers["org/whole"] == runs.first.answers["org/whole"]
    assert runs.second.of("org/whole") == []


def test_a_model_that_moved_is_brought_up_to_date(runs: Runs) -> None:
    """Only the file that differs is fetched; the old state stays where it was."""
    before, after = (Path(run.answers["org/moving"]) for run in (runs.first, runs.second))
    assert before != after
    assert runs.second.of("org/moving") == ["config.json"]
    assert (after / "config.json").read_text().startswith("{ ")
    assert not (before / "config.json").read_text().startswith("{ ")
    assert (after / "model.safetensors").read_bytes() == (before / "model.safetensors").read_bytes()


def test_without_a_network_the_cache_serves(runs: Runs) -> None:
    assert runs.offline.n_requests == 0
    for name in ("org/whole", "org/moving", "org/cut", STS):
        assert runs.offline.answers[name] == runs.second.answers[name]
    assert runs.offline.answers["org/gone"].startswith(
        "error: model 'org/gone' is neither a folder nor completely in the local cache, and the "
        "Hugging Face Hub cannot be reached or HF_HUB_OFFLINE is set"
    )


def test_a_file_that_is_gone(runs: Runs) -> None:
    """It is in the repository's tree, and cannot be had."""
    assert runs.first.answers["org/gone"] == (
        "error: model 'org/gone' is on the Hugging Face Hub, but one of the files it lists is "
        "missing there: try again later, or give the path of a model folder"
    )


def test_a_revision_that_is_not_there(runs: Runs) -> None:
    """The default branch, main, does not exist; neither does a revision that was asked for."""
    for name, revision in (("org/branch", "main"), ("org/tagged@v9", "v9")):
        repo = name.partition("@")[0]
        assert runs.first.answers[name] == (
            f"error: model {name!r} is on the Hugging Face Hub without the revision {revision!r}: "
            f"name one of its branches, tags or commits (all 40 digits), as in {repo}@REVISION"
        )
    assert runs.first.of("org/branch") == []
    assert runs.first.answers[f"{STS}@v9"].startswith(
        f"error: {STS}@v9 cannot be loaded from the Hub: it has no revision 'v9', which must be one"
    )


def test_a_revision_is_read_by_its_tag_or_its_commit(runs: Runs) -> None:
    """Tag and default branch differ in their configurations; what is the same is fetched once."""
    tag, commit, main = (
        Path(runs.first.answers[f"org/tagged{revision}"])
        for revision in ("@v1", f"@{OLD.commit}", "")
    )
    assert tag == commit != main
    assert (tag / "config.json").read_bytes() == OLD.files["config.json"]
    assert (main / "config.json").read_bytes() == model_files()["config.json"]
    assert load_encoder(tag).config == load_encoder(main).config  # they differ in a blank alone
    assert runs.first.of("org/tagged").count("config.json") == 2
    assert runs.first.of("org/tagged").count("model.safetensors") == 1
    for later in (runs.second, runs.offline):
        assert later.answers["org/tagged@v1"] == str(tag)
        assert later.answers["org/tagged"] == str(main)
        assert later.of("org/tagged") == []
    assert runs.offline.answers["org/tagged@v9"].startswith(
        "error: model 'org/tagged@v9' is neither a folder nor completely in the local cache"
    )


def test_a_revision_of_sts_is_read_from_the_hub_then_from_the_cache(runs: Runs) -> None:
    """Without a network too, where the default branch was read after it."""
    assert runs.first.answers[f"{STS}@v1"][2:] == [[0.0, 2.0], f"{STS}@v1:dev"]
    assert runs.offline.answers[f"{STS}@v1"] == runs.first.answers[f"{STS}@v1"]


def test_a_repository_that_is_not_there(runs: Runs) -> None:
    assert runs.first.answers["org/nobody"] == (
        "error: model 'org/nobody' is neither a folder nor on the Hugging Face Hub: check the "
        "spelling; for a private repository run 'hf auth login'"
    )


def test_a_broken_connection_is_taken_up_where_it_broke(runs: Runs) -> None:
    """24 MB, cut after 12: what had been written to the disk is not fetched again."""
    weights = (Path(runs.first.answers["org/large"]) / "model.safetensors").read_bytes()
    expected = model_files(24_000_000)["model.safetensors"]
    assert hashlib.sha256(weights).digest() == hashlib.sha256(expected).digest()
    assert runs.first.of("org/large").count("model.safetensors") == 2
    (resumed,) = runs.first.ranges
    assert 0 < int(resumed.removeprefix("bytes=").removesuffix("-")) <= 12_000_000


def test_a_download_cut_off_is_completed_by_the_next_run(runs: Runs) -> None:
    answer = runs.first.answers["org/cut"]
    assert answer.startswith(
        "error: model 'org/cut' could not be fetched from the Hugging Face Hub"
    )
    assert runs.second.of("org/cut") == ["model.safetensors"]
    folder = Path(runs.second.answers["org/cut"])
    assert (
        folder.joinpath("model.safetensors").read_bytes()
        == (GOLDEN / "bert/model.safetensors").read_bytes()
    )
    load_encoder(folder)


def test_sts_is_read_from_the_hub_then_from_the_cache(runs: Runs) -> None:
    sentences1, sentences2, scores, name = runs.first.answers[STS]
    assert sentences1 == ["A man plays 0.", "A man plays 1.", "A man plays 2."]
    assert sentences2 == ["A man sings 0.", "A man sings 1.", "A man sings 2."]
    assert scores == pytest.approx([1.0, 5.0, 2.75])  # from 0..1
    assert name == f"{STS}:dev"
    assert [name for name in runs.first.of(STS) if "validation" in name]
    assert runs.second.answers[STS] == runs.first.answers[STS]
    assert [name for name in runs.second.of(STS) if name.endswith(".parquet")] == []
