"""Which model is meant by a name: a folder, a built-in one, or a repository on the Hub."""

import re
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from jaxgeom.models.config import ModelError
from jaxgeom.models.tokens import TOKENIZER_FILES

# What is read here; repositories hold the same weights again in other libraries' formats.
_WANTED = ["config.json", "model*.safetensors", "model.safetensors.index.json", *TOKENIZER_FILES]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

# Small models that are part of the package, a folder each.
BUILTIN = resources.files("jaxgeom.models") / "builtin"

# What the Hub's errors mean for whoever named a model, and the way out; the first that fits.
_REFUSALS: dict[type[Exception], str] = {
    HFValidationError: (
        "must be a folder, or an id of the Hugging Face Hub (ORG/MODEL), got neither"
    ),
    GatedRepoError: (
        "is given out on conditions: accept them on its page of the Hugging Face Hub, then run "
        "'hf auth login'"
    ),
    RepositoryNotFoundError: (
        "is neither a folder nor on the Hugging Face Hub: check the spelling; for a private "
        "repository run 'hf auth login'"
    ),
    RevisionNotFoundError: (
        "is on the Hugging Face Hub without the revision {revision!r}: name one of its branches, "
        "tags or commits (all 40 digits), as in {repo}@REVISION"
    ),
    RemoteEntryNotFoundError: (
        "is on the Hugging Face Hub, but one of the files it lists is missing there: try again "
        "later, or give the path of a model folder"
    ),
    LocalEntryNotFoundError: (
        "is neither a folder nor completely in the local cache, and the Hugging Face Hub cannot be "
        "reached or HF_HUB_OFFLINE is set: give the path of a model folder, or try again with a "
        "network"
    ),
}


class NamedModel(NamedTuple):
    """A model and what tables and files call it."""

    name: str
    source: str  # a folder, a Hub id or HUBID@REVISION, as `resolve_model` takes it


def parse_model(text: str) -> NamedModel:
    """Split a model as given on a command line into its name and where it comes from.

    Args:
        text: A path, a Hub id, or `HUBID@REVISION`, each with or without `NAME=` before it. A path
            or id goes by its last part, without the revision.

    Returns:
        The name and the source.

    Raises:
        ModelError: If there is no name that could also begin a file's name.

    Example:
        >>> parse_model("minilm=sentence-transformers/all-MiniLM-L6-v2").name
        'minilm'
        >>> parse_model("google-bert/bert-base-uncased").name
        'bert-base-uncased'
        >>> parse_model("google-bert/bert-base-uncased@main")
        NamedModel(name='bert-base-uncased', source='google-bert/bert-base-uncased@main')
    """
    before, equals, after = text.partition("=")
    if equals and not Path(text).expanduser().is_dir():  # a folder's name may hold a "="
        name, source = before, after
    else:
        name, source = Path(_split(text)[0]).expanduser().resolve().name, text
    if not source or not _NAME.fullmatch(name):
        raise ModelError(
            "a model must be given as NAME=PATH, a path or a Hub id, its name of letters, digits, "
            f"'.', '_' and '-', got {text!r}"
        )
    return NamedModel(name, source)


def resolve_model(name: str | Path, *, revision: str | None = None) -> Path:
    """Return the folder of a model, which is fetched if need be.

    Args:
        name: A folder; or, where there is none of that name, a built-in model ("mini-bert",
            "mini-roberta"); or the id of a repository on the Hugging Face Hub, of which a copy
            that was fetched before serves without a network. `HUBID@REVISION` gives the id its
            revision.
        revision: A branch, a tag or a commit of a repository on the Hub; its default branch where
            there is none.

    Returns:
        A folder with a `config.json`.

    Raises:
        ModelError: If there is no such model or revision, if a model that is not on the Hub is
            given a revision, if the Hub cannot be reached, or if the repository has no weights in
            safetensors; the message says what to do.
    """
    source, named = _split(name)
    if named is not None and revision is not None:
        raise ModelError(f"{name} names a revision already, got revision={revision!r} too")
    revision = revision if named is None else named
    if revision == "":
        raise ModelError(f"revision must be a branch, a tag or a commit, got '' for {name}")
    folder = _folder(source)
    here = folder or _builtin(str(source))
    if here is None:
        return _checked(_fetch(str(source), revision), str(source), revision)
    if revision is not None:
        raise ModelError(
            f"a revision must be one of a model on the Hugging Face Hub, got {revision!r} for the "
            f"{'folder' if folder else 'built-in model'} {source}"
        )
    return here


def _split(name: str | Path) -> tuple[str | Path, str | None]:
    """Split HUBID@REVISION; a folder that is there, or could only be one, may hold an "@"."""
    source, at, revision = str(name).partition("@")
    if not at or Path(name).expanduser().exists():
        return name, None
    before = Path(source) if isinstance(name, Path) else source
    if _is_path(before) and not Path(before).expanduser().exists():
        return name, None
    return before, revision


def _folder(name: str | Path) -> Path | None:
    """Return the folder of that name, which holds a model; None where a Hub id may be meant."""
    folder = Path(name).expanduser()
    if folder.exists():
        if not (folder / "config.json").is_file():
            raise ModelError(f"{name} must be a model folder: there is no config.json in it")
        return folder
    if _is_path(name):
        raise ModelError(f"{name} must be a model folder: there is no such folder")
    return None


def _builtin(name: str) -> Path | None:
    """Return the folder of a built-in model, if there is one of that name."""
    folder = BUILTIN / name
    if _NAME.fullmatch(name) and isinstance(folder, Path) and folder.is_dir():
        return folder
    return None


def _is_path(name: str | Path) -> bool:
    """Whether a name cannot mean a repository."""
    text = str(name)
    return isinstance(name, Path) or text.startswith((".", "/", "~")) or text.count("/") > 1


def _fetch(repo: str, revision: str | None) -> Path:
    """Fetch a repository, or say why that failed."""
    model = _written(repo, revision)
    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=_WANTED))
    except tuple(_REFUSALS) as error:
        says = next(says for kind, says in _REFUSALS.items() if isinstance(error, kind))
        says = says.format(repo=repo, revision=revision or "main")
        raise ModelError(f"model {model!r} {says}") from error
    except (HTTPError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"model {model!r} could not be fetched from the Hugging Face Hub: {reason}"
        ) from error


def _checked(folder: Path, repo: str, revision: str | None) -> Path:
    """Return what was fetched, if it is a model that can be read."""
    model = _written(repo, revision)
    if not (folder / "config.json").is_file():
        raise ModelError(f"model {model!r} on the Hugging Face Hub has no config.json")
    if not any(folder.glob("model*.safetensors")):
        of_revision = "" if revision is None else f", revision={revision!r}"
        raise ModelError(
            f"model {model!r} on the Hugging Face Hub has no weights in safetensors: convert it "
            "where torch is installed, with transformers.AutoModel.from_pretrained"
            f"({repo!r}{of_revision}).save_pretrained(FOLDER), and give that folder"
        )
    return folder


def _written(repo: str, revision: str | None) -> str:
    """Return how a model on the Hub is named on a command line."""
    return repo if revision is None else f"{repo}@{revision}"
