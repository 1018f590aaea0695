"""A hub on loopback: as much of its HTTP interface as fetching a model takes."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

SHA = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_of_a_reader"


@dataclass
class Repository:
    """What it holds, who may read it, and how it fails."""

    files: dict[str, bytes]
    revisions: tuple[str, ...] = ("main", SHA)
    is_gated: bool = False
    sizes: dict[str, int] = field(default_factory=dict)  # that it claims, where they are others
    withheld: tuple[str, ...] = ()  # whose content is answered with an error
    cut_after: int | None = None  # bytes of the next large answer, before the connection breaks


class Hub:
    """Its repositories, and the requests that came."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, str | None]] = []  # method, path, range
        self.url = ""

    def fetched(self) -> list[str]:
        """The files whose content was asked for."""
        return [path.rsplit("/", 1)[-1] for method, path, _ in self.requests if method == "GET"
                and "/resolve/" in path]  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, has_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Range")))
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._about("/".join(parts[2:4]), parts[4:])
        elif len(parts) > 3 and parts[2] == "resolve":
            self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]), has_body)
        else:
            self._json(404, {})

    def _repository(self, name: str, revision: str) -> Repository | None:
        """The one asked for, unless the answer is an error, which is then given."""
        found = self.hub.repositories.get(name)
        if found is None:
            self._json(401, {"error": "Repository not found"}, "RepoNotFound")
        elif found.is_gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json(403, {"error": "Access to this model is restricted"}, "GatedRepo")
        elif revision not in found.revisions:
            self._json(404, {"error": "Invalid rev id"}, "RevisionNotFound")
        else:
            return found
        return None

    def _about(self, name: str, rest: list[str]) -> None:
        kind, revision = rest[0], rest[1]
        # That there is a gated model may be known to all; its files may not.
        known = self.hub.repositories.get(name)
        if known is not None and known.is_gated and kind == "revision":
            self._json(200, {"id": name, "sha": SHA})
            return
        found = self._repository(name, revision)
        if found is None:
            return
        if kind == "revision":
            self._json(200, {"id": name, "sha": SHA})
            return
        tree = [
            {
                "type": "file",
                "path": path,
                "oid": hashlib.sha1(data).hexdigest(),
                "size": found.sizes.get(path, len(data)),
            }
            for path, data in found.files.items()
        ]
        self._json(200, tree)

    def _file(self, name: str, revision: str, path: str, has_body: bool) -> None:
        found = self._repository(name, revision)
        if found is None:
            return
        if path not in found.files:
            self._json(404, {"error": "Entry not found"}, "EntryNotFound")
            return
        if has_body and path in found.withheld:
            self._json(500, {"error": "Internal error"})
            return
        data, first = found.files[path], 0
        if asked := self.headers.get("Range"):
            first = int(asked.removeprefix("bytes=").split("-")[0])
        self.send_response(206 if first else 200)
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", SHA)
        self.send_header("Accept-Ranges", "bytes")
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        size = len(data) - first if has_body else found.sizes.get(path, len(data))
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if not has_body:
            return
        if found.cut_after is not None and len(data) > found.cut_after:
            self.wfile.write(data[first : first + found.cut_after])
            found.cut_after = None
            self.close_connection = True
            return
        self.wfile.write(data[first:])

    def _json(self, status: int, body: object, code: str = "") -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def hub_server() -> Iterator[Hub]:
    """One that listens for the block's time."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
