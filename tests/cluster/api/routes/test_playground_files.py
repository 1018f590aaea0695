"""The playground's files over HTTP: their headers, and that nothing else is served."""

import httpx
import pytest

from outrider.cluster.api.routes import playground


@pytest.mark.parametrize("path", ["/", *(f"/playground/{name}" for name in playground.FILES[1:])])
async def test_files_go_out_with_their_headers(http: httpx.AsyncClient, path: str) -> None:
    reply = await http.get(path)
    headers = reply.headers
    assert reply.status_code == 200
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    etag = headers["etag"]
    for known, code in ((etag, 304), (f'"x", W/{etag}', 304), ("*", 304), ('"x"', 200)):
        again = await http.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.headers["etag"]) == (code, etag)
        assert (again.content == b"") == (code == 304)


async def test_nothing_else_is_served(http: httpx.AsyncClient) -> None:
    for name in ("index.html", "playground.py", "..%2fapp.py", ".", "nothing.js"):
        reply = await http.get(f"/playground/{name}")
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_url")
    assert (await http.post("/")).status_code == 405


def test_the_list_of_files_is_the_folder() -> None:
    assert {path.name for path in playground.FOLDER.iterdir()} == set(playground.FILES)
