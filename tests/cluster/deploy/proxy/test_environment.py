"""The ports of one server among others on the machine."""

import resource
import socket
from pathlib import Path

import pytest

from outrider.actors.errors import InvalidConfig
from outrider.cluster.deploy.proxy import environment
from outrider.cluster.deploy.proxy.environment import (
    claimed_ports,
    free_ports,
    proxy_environment,
)

pytestmark = pytest.mark.usefixtures("few")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for three servers."""
    monkeypatch.setattr(environment, "END_PORT", environment.FIRST_PORT + 3 * 100)


def test_no_two_servers_have_a_port_in_common() -> None:
    with claimed_ports() as one, claimed_ports() as two, claimed_ports() as three:
        assert len({*one, *two, *three}) == 3 * 99
        with pytest.raises(InvalidConfig, match="Got no 100 free ports together"), claimed_ports():
            pass
    with claimed_ports() as again:
        assert again in (one, two, three)


def test_a_range_that_a_stranger_listens_in_is_left_to_him() -> None:
    with socket.create_server(("127.0.0.1", environment.FIRST_PORT + 150)):
        for _ in range(20):
            with claimed_ports() as ports:
                assert environment.FIRST_PORT + 150 not in ports


def test_no_port_of_a_server_is_rays_fixed_one(tmp_path: Path) -> None:
    with claimed_ports() as ports:
        variables = proxy_environment("haproxy", tmp_path, ports)
    found = [int(value) for name, value in variables.items() if name.endswith("_PORT")]
    assert len(found) == len(set(found)) == 6
    assert not {8000, 8404, 8500, 9000, 9101, 9500, 30000, 31000} & set(found)
    assert {ports[0], ports[-1]} <= set(found)


def test_no_port_is_one_that_the_system_may_give_out_meanwhile(tmp_path: Path) -> None:
    """Seconds go by until HAProxy listens, in which Ray's own sockets get their ports."""
    with claimed_ports() as ports:
        variables = proxy_environment("haproxy", tmp_path, ports)
    found = [int(value) for name, value in variables.items() if name.endswith("_PORT")]
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(found) < lowest


def test_ports_that_others_have_are_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    first = environment.FIRST_OWN_PORT
    monkeypatch.setattr(environment, "FIRST_PORT", first + 3)
    assert sorted(free_ports(3)) == [first, first + 1, first + 2]
    with socket.create_server(("127.0.0.1", first + 1)):
        assert sorted(free_ports(2)) == [first, first + 2]
        with pytest.raises(InvalidConfig, match="Got no 3 free ports from"):
            free_ports(3)


@pytest.mark.parametrize(("most", "expected"), [(resource.RLIM_INFINITY, 16_384), (4096, 1536)])
def test_haproxy_has_as_many_connections_as_files_allow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int, expected: int
) -> None:
    """More than 4096, which a few thousand unfinished requests would use up; no more than it can
    have, or it would not start.
    """
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, most))
    found = proxy_environment("haproxy", tmp_path, range(20_000, 20_100))
    assert found["RAY_SERVE_HAPROXY_MAXCONN"] == str(expected)
