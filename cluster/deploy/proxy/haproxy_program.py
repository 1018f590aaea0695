"""HAProxy as a program that ends with its parent, listens on loopback only, and has our rules.

Ray starts HAProxy but ties it to nothing: were we killed, it would keep the port. And it has
statistics and metrics listen on every interface, and sends what no replica can take to a proxy that
lets it wait. So the configuration that Ray writes is changed before HAProxy reads it. Imports
nothing of ours: its text is copied into the server's own folder and run from there.
"""

import ctypes
import json
import os
import pathlib
import re
import sys

PROXY_HEADER = "x-outrider-proxy"  # that a replica asks for, `api/middleware/access.py`
RETRY_AFTER_S = 5
HEAD_S = 10  # for the head of a request to come
PR_SET_PDEATHSIG, SIGTERM = 1, 15
# Headers that Ray Serve reads as UTF-8 before our application sees the request; other bytes in them
# are a 500 there.
READ_BY_SERVE = ("x-request-id", "x-session-id", "serve_multiplexed_model_id", "traceparent")


def answer(status: int, message: str, type_: str, headers: str = "") -> str:
    """A rule that answers with our error envelope."""
    error = {"message": message, "type": type_, "param": None, "code": None}
    kind, body = "content-type application/json", json.dumps({"error": error})
    return f"http-request return status {status} {kind} {headers}string '{body}'"


LOADING = answer(
    503,
    "No replica can take the request: the model is loading, or its replica is being replaced",
    "server_error",
    f"hdr retry-after {RETRY_AFTER_S} ",
)
UNREADABLE = answer(
    400,
    f"Got bytes outside ASCII in one of the headers {', '.join(READ_BY_SERVE)}, expected "
    "printable ASCII",
    "invalid_request_error",
)
UPGRADE = answer(
    400,
    "Got an upgrade to WebSocket, expected plain HTTP: streams are server-sent events",
    "invalid_request_error",
)


def rewritten(text: str, token: str) -> str:
    """Ray's configuration with our changes."""
    text = text.replace("bind *:", "bind :").replace("bind :", "bind 127.0.0.1:")
    text = re.sub(r"\n +server \S+ \S+ check backup(?=\n|$)", "", text)
    text = text.replace("\ndefaults\n", f"\ndefaults\n    timeout http-request {HEAD_S}s\n")
    text = re.sub(
        r"(\nbackend default_backend\n) +http-request return [^\n]*", rf"\1    {LOADING}", text
    )
    frontend = re.search(r"\nfrontend http_frontend\n(?:[ \t].*\n|\n)*", text)
    backends = re.findall(r"use_backend (\S+) if is_", frontend[0] if frontend else "")
    rules = [
        *(f'{UNREADABLE} if {{ req.hdr({name}) -m reg "[^ -~]" }}' for name in READ_BY_SERVE),
        f"{UPGRADE} if {{ req.hdr(upgrade) -m sub -i websocket }}",
        "http-request del-header upgrade",
        f"http-request set-header {PROXY_HEADER} {token}",
        *(f"{LOADING} if {{ nbsrv({name}) eq 0 }}" for name in backends),
    ]
    lines = "".join(f"    {rule}\n" for rule in rules)
    return text.replace("\nfrontend http_frontend\n", "\nfrontend http_frontend\n" + lines)


def main(binary: str, token: str) -> None:
    """Become HAProxy, with these arguments."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGTERM)
    for path in (pathlib.Path(name) for name in sys.argv if name.endswith(".cfg")):
        path.write_text(rewritten(path.read_text(), token))
    os.execv(binary, ["haproxy", *sys.argv[1:]])
