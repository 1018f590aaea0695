"""GET / and /playground/{file}: a page to try the server in. Knows nothing of what it asks for.

The files are static, go out without a key, and nothing else is served from disk.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

FOLDER = Path(__file__).parents[1] / "playground"
PAGE = "index.html"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES = (
    PAGE,
    "api.js",
    "chart.js",
    "conversation.js",
    "event_stream.js",
    "favicon.svg",
    "form.js",
    "origin.js",
    "pane.js",
    "playground.css",
    "playground.js",
    "tally.js",
    "thoughts.js",
    "tree.js",
)
HEADERS = {
    "cache-control": "no-cache",  # kept, and asked for anew each time by its ETag
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    """One file as it goes out."""

    content: bytes
    media_type: str
    etag: str  # strong: of the content

    def response(self, request: Request) -> Response:
        """The file, or 304 where the client has it."""
        headers = HEADERS | {"etag": self.etag}
        if _names(request.headers.get("if-none-match", ""), self.etag):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


def routes() -> APIRouter:
    """The page and its files, read once."""
    router = APIRouter()
    files = {name: _read(FOLDER / name) for name in FILES}

    async def page(request: Request) -> Response:
        return files[PAGE].response(request)

    async def part(request: Request) -> Response:
        name = request.path_params["file"]
        if name == PAGE or name not in files:
            raise HTTPException(404)
        return files[name].response(request)

    router.add_route("/", page, methods=["GET"], include_in_schema=False)
    router.add_route("/playground/{file}", part, methods=["GET"], include_in_schema=False)
    return router


def _read(path: Path) -> _File:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return _File(content, MEDIA_TYPES[path.suffix], etag)


def _names(if_none_match: str, etag: str) -> bool:
    known = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in known or etag in known
