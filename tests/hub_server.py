"""A server on the loopback interface that answers as the Hugging Face Hub does.

It speaks the part of the protocol that downloads use: a repository's revision, its tree, and its
files, the large ones behind a redirect to storage, in whole or by range. It logs what it was asked,
and can be told to fail at a file. Standard library alone.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = (".safetensors", ".parquet")  # kept in storage, as Git LFS does


class Request(NamedTuple):
    """One line of the log."""

    method: str
    path: str
    range: str | None
    status: int


@dataclass
class Repo:
    """A repository at one commit, and what its other branches and tags hold; faults are files."""

    files: dict[str, bytes]
    branches: tuple[str, ...] = ("main",)
    others: dict[str, "Repo"] = field(default_factory=dict)  # by branch or tag
    gone: set[str] = field(default_factory=set)  # in the tree, but not to be had
    cut: dict[str, int] = field(default_factory=dict)  # connections to break half-way, still to go

    def at(self, revision: str) -> "Repo | None":
        """Return the repository at a branch, a tag or a commit, if it has that."""
        if revision in (*self.branches, self.commit):
            return self
        found = [r for name, r in self.others.items() if revision in (name, r.commit)]
        return found[0] if found else None

    @property
    def commit(self) -> str:
        """What identifies the contents of all files."""
        listing = sorted(
            (name, hashlib.sha1(data).hexdigest()) for name, data in self.files.items()
        )
        return hashlib.sha1(json.dumps(listing).encode()).hexdigest()


class Hub:
    """Repositories by kind and id, and what was asked of them."""

    def __init__(self, repos: dict[str, Repo]) -> None:
        """Serve `repos`, whose keys are as in "models/org/name" or "datasets/org/name"."""
        self.repos = repos
        self.log: list[Request] = []
        self.endpoint = ""
        self.storage = ""

    def fetched(self) -> list[str]:
        """Return the paths of all files of which contents were sent, in order."""
        return [r.path for r in self.log if r.method == "GET" and not r.path.startswith("/api/")]


@contextmanager
def serve(repos: dict[str, Repo]) -> Iterator[Hub]:
    """Run a server in the background; its address is the hub's `endpoint`."""
    hub = Hub(repos)
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        port = server.server_address[1]
        hub.endpoint = f"http://127.0.0.1:{port}"
        hub.storage = f"http://localhost:{port}"  # another host, as far as a client can tell
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers requests."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *args: Any) -> None:
        """Keep standard error clean; the log is the hub's."""

    def _answer(self) -> None:
        """Find the resource that the path names."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(.*))?", path):
            kind, name, rest = match.groups()
            self._api(f"{kind}/{name}", rest or "revision/main", body)
        elif match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            kind, name, revision, file = match.groups()
            self._file(f"{kind or 'models/'}{name}", revision, file)
        elif match := re.fullmatch(r"/storage/((?:models|datasets)/[^/]+/[^/]+)/(.+?)/(.+)", path):
            key, commit, file = match.groups()
            repo = self._repo(key, commit)
            if repo is not None:
                self._contents(repo, file, {"ETag": f'"{_sha256(repo.files[file])}"'})
        else:
            self._error(404, "EntryNotFound")

    def _repo(self, key: str, revision: str) -> Repo | None:
        """Return a repository that has the revision; None after an error was sent."""
        if key not in self.hub.repos:
            self._error(401, "RepoNotFound")  # what the Hub tells those who are not logged in
            return None
        repo = self.hub.repos[key].at(revision)
        if repo is None:
            self._error(404, "RevisionNotFound")
        return repo

    def _api(self, key: str, rest: str, body: str) -> None:
        """Describe a repository at a revision, or the files in it."""
        what, _, rest = rest.partition("/")
        revision, _, under = rest.partition("/")
        repo = self._repo(key, revision)
        if repo is None:
            return
        if what == "revision":
            files = [{"rfilename": name} for name in repo.files]
            name = key.partition("/")[2]
            self._json({"id": name, "sha": repo.commit, "siblings": files, "private": False})
        elif what == "tree":
            recursive = "recursive=true" in self.path.lower()
            self._json([e for e in _entries(repo) if _lies_in(under, e["path"], recursive)])
        elif what == "paths-info":
            asked = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
            self._json([entry for entry in _entries(repo) if entry["path"] in asked])
        else:
            self._error(404, "EntryNotFound")

    def _file(self, key: str, revision: str, file: str) -> None:
        """Send a small file; say where a large one is stored."""
        repo = self._repo(key, revision)
        if repo is None:
            return
        headers = {"X-Repo-Commit": repo.commit}
        if file not in repo.files or file in repo.gone:
            self._error(404, "EntryNotFound", headers)
            return
        data = repo.files[file]
        if file.endswith(LARGE):
            headers |= {
                "X-Linked-Etag": f'"{_sha256(data)}"',
                "X-Linked-Size": str(len(data)),
                "Location": f"{self.hub.storage}/storage/{key}/{repo.commit}/{file}",
            }
            self._send(302, b"", headers)
        else:
            self._contents(repo, file, headers | {"ETag": f'"{_blob(data)}"'})

    def _contents(self, repo: Repo, file: str, headers: dict[str, str]) -> None:
        """Send a file or a range of it; break the connection half-way where that was asked for."""
        data, status = repo.files[file], 200
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            first, last = int(match[1]), int(match[2] or len(data) - 1)
            headers |= {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
            data, status = data[first : last + 1], 206
        cut = self.command == "GET" and repo.cut.get(file, 0) > 0
        if cut:
            repo.cut[file] -= 1
        self._send(status, data, headers | {"Accept-Ranges": "bytes"}, cut=cut)

    def _json(self, value: Any) -> None:
        """Send a value as JSON."""
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        """Send an error as the Hub names it."""
        self._send(status, b"{}", (headers or {}) | {"X-Error-Code": code, "X-Error-Message": code})

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False
    ) -> None:
        """Log and send; of a body that is cut, the first half."""
        path = unquote(urlsplit(self.path).path)
        self.hub.log.append(Request(self.command, path, self.headers.get("Range"), status))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True


def _entries(repo: Repo) -> list[dict[str, Any]]:
    """Return the tree of a repository, folders first."""
    folders = {name.rpartition("/")[0] for name in repo.files} - {""}
    return [
        {"type": "directory", "path": name, "size": 0, "oid": _blob(name.encode())}
        for name in sorted(folders)
    ] + [
        {"type": "file", "path": name, "size": len(data), "oid": _blob(data)}
        | ({"lfs": _lfs(data)} if name.endswith(LARGE) else {})
        for name, data in repo.files.items()
    ]


def _lies_in(folder: str, path: str, recursive: bool) -> bool:
    """Whether a path is in a folder, "" being the root; directly, or anywhere below."""
    inside = path.startswith(f"{folder}/") if folder else True
    return inside and (recursive or "/" not in path[len(folder) :].strip("/"))


def _lfs(data: bytes) -> dict[str, Any]:
    """Describe a large file."""
    return {"oid": _sha256(data), "size": len(data), "pointerSize": 134}


def _sha256(data: bytes) -> str:
    """Return what identifies a large file."""
    return hashlib.sha256(data).hexdigest()


def _blob(data: bytes) -> str:
    """Return what Git calls a file's contents."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
