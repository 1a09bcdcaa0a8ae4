"""What a model's name means, and what is said where there is no such model or no network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from huggingface_hub import errors

from jaxgeom.models import ModelError, parse_model, resolve_model
from jaxgeom.models import hub as module

GOLDEN = Path(__file__).parent / "golden"
ASK = """
import sys
from jaxgeom.models import ModelError, resolve_model
for name in sys.argv[1:]:
    try:
        print(resolve_model(name))
    except ModelError as error:
        print(error)
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def ask(names: list[str], home: Path, **environment: str) -> list[str]:
    """Resolve names in a process of its own: the Hub's settings are read once, on import."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *names],
        env=kept | {"HF_HOME": str(home)} | environment,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def cache(home: Path, repo: str, *names: str) -> Path:
    """Put files of the small BERT where a fetched repository lies; return that folder."""
    root = home / "hub" / f"models--{repo.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs/main").write_text(COMMIT)
    snapshot = root / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name in names:
        shutil.copy(GOLDEN / "bert" / name, snapshot / name)
    return snapshot


@pytest.mark.parametrize(
    "environment",
    [{"HF_ENDPOINT": "http://127.0.0.1:9"}, {"HF_HUB_OFFLINE": "1"}],
    ids=["unreachable", "offline"],
)
def test_without_a_network(environment, tmp_path):
    whole = cache(tmp_path, "org/whole", "config.json", "model.safetensors", "tokenizer.json")
    cache(tmp_path, "org/pickle", "config.json")
    names = ["org/nothing", "org/whole", "org/pickle", "org/pickle@main", "no such name"]
    nothing, found, pickle, tagged, misnamed = ask(names, tmp_path, **environment)
    assert nothing == (
        "model 'org/nothing' is neither a folder nor completely in the local cache, and the "
        "Hugging Face Hub cannot be reached or HF_HUB_OFFLINE is set: give the path of a model "
        "folder, or try again with a network"
    )
    assert found == str(whole)
    assert pickle.startswith("model 'org/pickle' on the Hugging Face Hub has no weights in safeten")
    assert "AutoModel.from_pretrained('org/pickle').save_pretrained(FOLDER)" in pickle
    assert "from_pretrained('org/pickle', revision='main').save_pretrained(FOLDER)" in tagged
    assert misnamed == (
        "model 'no such name' must be a folder, or an id of the Hugging Face Hub (ORG/MODEL), "
        "got neither"
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.RepositoryNotFoundError, "is neither a folder nor on the Hub"),
        (errors.GatedRepoError, "accept them on its page"),
        (errors.HfHubHTTPError, "could not be fetched from the Hugging Face Hub: line 1$"),
    ],
)
def test_the_hubs_answers(error, message, monkeypatch):
    def refuse(*args, **options):
        raise error("line 1\nline 2", response=Mock(headers={}))

    monkeypatch.setattr(module, "snapshot_download", refuse)
    message = message.replace("the Hub", "the Hugging Face Hub")
    with pytest.raises(ModelError, match=rf"model 'org/name' .*{message}"):
        resolve_model("org/name")


def test_a_full_disk_while_fetching(monkeypatch):
    monkeypatch.setattr(module, "snapshot_download", Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(ModelError, match=r"could not be fetched .*: \[Errno 28\] No space left"):
        resolve_model("org/name")


def test_only_what_is_read_is_fetched(monkeypatch):
    fetch = Mock(return_value=str(GOLDEN / "bert"))
    monkeypatch.setattr(module, "snapshot_download", fetch)
    assert resolve_model("org/name") == GOLDEN / "bert"
    offered = [
        "config.json",
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "vocab.txt",
        "merges.txt",
        "pytorch_model.bin",
        "tf_model.h5",
        "onnx/model.onnx",
        "README.md",
    ]
    from huggingface_hub.utils import filter_repo_objects

    patterns = fetch.call_args.kwargs["allow_patterns"]
    assert list(filter_repo_objects(offered, allow_patterns=patterns)) == offered[:7]


def test_a_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "snapshot_download", Mock(side_effect=AssertionError))
    assert resolve_model(GOLDEN / "bert") == GOLDEN / "bert"
    assert resolve_model(str(GOLDEN / "bert")) == GOLDEN / "bert"
    shutil.copytree(GOLDEN / "bert", tmp_path / "org/name")
    monkeypatch.chdir(tmp_path)
    assert resolve_model("org/name") == Path("org/name")  # before the Hub
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("~/org/name") == tmp_path / "org/name"


@pytest.mark.parametrize("name", ["./nowhere", "/no/where", "~/nowhere", "a/b/c", Path("a")])
def test_a_path_to_nowhere_is_not_sought_on_the_hub(name, monkeypatch):
    monkeypatch.setattr(module, "snapshot_download", Mock(side_effect=AssertionError))
    with pytest.raises(ModelError, match=f"{name} must be a model folder: there is no such folder"):
        resolve_model(name)


def test_a_folder_or_file_that_is_no_model(tmp_path):
    with pytest.raises(ModelError, match=r"must be a model folder: there is no config\.json in it"):
        resolve_model(tmp_path)
    with pytest.raises(ModelError, match=r"must be a model folder: there is no config\.json in it"):
        resolve_model(GOLDEN / "bert.npz")


@pytest.mark.parametrize(
    ("text", "name", "source"),
    [
        ("mine=/models/bert", "mine", "/models/bert"),
        ("mine=org/bert", "mine", "org/bert"),
        ("mine=/runs/lr=1e-4", "mine", "/runs/lr=1e-4"),
        ("org/bert-base", "bert-base", "org/bert-base"),
        ("bert-base", "bert-base", "bert-base"),
        ("/models/bert/", "bert", "/models/bert/"),
        ("bert-base@86b5e09", "bert-base", "bert-base@86b5e09"),
        ("org/bert-base@refs/pr/1", "bert-base", "org/bert-base@refs/pr/1"),
        ("mine=org/bert@v1.0", "mine", "org/bert@v1.0"),
    ],
)
def test_named_models(text, name, source):
    assert parse_model(text) == (name, source)


def test_a_folder_with_an_equals_sign(tmp_path, monkeypatch):
    (tmp_path / "lr=1").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="a model must be given as NAME=PATH"):
        parse_model("lr=1")  # "lr=1" as a name would not do in a file's
    (tmp_path / "lr=1/final").mkdir()
    assert parse_model("lr=1/final") == ("final", "lr=1/final")
    (tmp_path / "lr=1/final").rmdir()
    assert parse_model("lr=1/final") == ("lr", "1/final")


def test_a_folder_with_an_at_sign_has_no_revision(tmp_path, monkeypatch):
    fetch = Mock(side_effect=OSError("no network"))
    monkeypatch.setattr(module, "snapshot_download", fetch)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN / "bert", tmp_path / "run@2/bert")
    assert parse_model("run@2/bert") == ("bert", "run@2/bert")
    assert parse_model("mine=run@2") == ("mine", "run@2")
    for name in ("run@2/bert", Path("run@2/bert"), tmp_path / "run@2/bert"):
        assert resolve_model(name) == Path(name)
    with pytest.raises(
        ModelError, match=r"\./run@3 must be a model folder: there is no such folder"
    ):
        resolve_model("./run@3")
    assert not fetch.called
    with pytest.raises(ModelError, match=r"'run@3' could not be fetched"):
        resolve_model("run@3")  # a branch called 3
    assert fetch.call_args.args == ("run",)
    assert fetch.call_args.kwargs["revision"] == "3"


@pytest.mark.parametrize("name", ["model", "./model", Path("model")])
def test_only_the_hub_has_revisions(name, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "snapshot_download", Mock(side_effect=AssertionError))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN / "bert", tmp_path / "model")
    must = "a revision must be one of a model on the Hugging Face Hub, got 'v1' for the"
    with pytest.raises(ModelError, match=f"^{must} folder {name}$"):
        resolve_model(name, revision="v1")
    with pytest.raises(ModelError, match=f"^{must} folder {name}$"):
        resolve_model(type(name)(f"{name}@v1"))
    with pytest.raises(ModelError, match=f"^{must} built-in model mini-bert$"):
        resolve_model("mini-bert@v1")
    with pytest.raises(ModelError, match=f"^{must} built-in model mini-bert$"):
        resolve_model("mini-bert", revision="v1")


def test_a_revision_is_given_once(monkeypatch):
    fetch = Mock(return_value=str(GOLDEN / "bert"))
    monkeypatch.setattr(module, "snapshot_download", fetch)
    assert resolve_model("org/name", revision="v1") == GOLDEN / "bert"
    assert fetch.call_args.args == ("org/name",)
    assert fetch.call_args.kwargs["revision"] == "v1"
    with pytest.raises(ModelError, match="org/name@v1 names a revision already, got revision='v1'"):
        resolve_model("org/name@v1", revision="v1")
    with pytest.raises(
        ModelError, match="revision must be a branch, a tag or a commit, got '' for"
    ):
        resolve_model("org/name@")


@pytest.mark.parametrize("text", ["", "=", "a=", "=b", "a b=c", "../x=y", "-a=b", "/"])
def test_no_name(text):
    with pytest.raises(ModelError, match="a model must be given as NAME=PATH, a path or a Hub id"):
        parse_model(text)


def test_built_in_model_stands_between_folder_and_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "BUILTIN", tmp_path / "builtin")
    monkeypatch.setattr(module, "snapshot_download", Mock(side_effect=OSError("no network")))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN / "bert", tmp_path / "builtin" / "tiny")
    assert resolve_model("tiny") == tmp_path / "builtin" / "tiny"
    for name in ("tiny-er", "builtin/../tiny"):
        with pytest.raises(ModelError, match=r"could not be fetched|no such folder"):
            resolve_model(name)
    shutil.copytree(GOLDEN / "bert", tmp_path / "tiny")
    assert resolve_model("tiny") == Path("tiny")
