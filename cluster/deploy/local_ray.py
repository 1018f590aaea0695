"""Ray as `outrider serve` needs it: started here or connected to, and left without trace.

Pins what Ray would otherwise decide by itself: no dashboard, no usage reports, a token of its own
kept in memory, a folder of its own that is removed at the end.
"""

import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.config import Config
from outrider.cluster.deploy.preflight import local_resources
from outrider.cluster.deploy.proxy_environment import LOOPBACK, claimed_ports, proxy_environment

LOCAL = "local"
OBJECT_STORE_BYTES = 128 << 20  # nothing but configuration goes through it


@contextmanager
def connected(config: Config) -> Iterator[None]:
    """A connection to Ray. Raises InvalidConfig when there is none to be had."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if config.cluster.address != LOCAL:
        with _joined(config):
            yield
    else:
        with claimed_ports() as replica_ports, _local(config, replica_ports):
            yield


@contextmanager
def _joined(config: Config) -> Iterator[None]:
    import ray

    try:
        ray.init(
            address=config.cluster.address,
            logging_level=logging.WARNING,
            log_to_driver=config.cluster.shows_logs,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        address = config.cluster.address
        raise InvalidConfig(f"Cannot join the cluster {address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _local(config: Config, replica_ports: range) -> Iterator[None]:
    folder = Path(config.cluster.temp_dir or tempfile.mkdtemp(prefix="outrider-ray-"))
    before = dict(os.environ)
    os.environ |= _local_environment(config, folder, replica_ports)
    import ray  # reads the environment as it is imported

    resources = local_resources()
    try:
        ray.init(
            address=LOCAL,
            num_cpus=int(resources["CPU"]),
            num_gpus=int(resources["GPU"]),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            _node_ip_address=LOOPBACK,  # which its processes then listen on, and on nothing else
            logging_level=logging.WARNING,
            log_to_driver=config.cluster.shows_logs,
            _temp_dir=str(folder),
        )
        yield
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ.update(before)
        if config.cluster.temp_dir is None:
            shutil.rmtree(folder, ignore_errors=True)


def _local_environment(config: Config, folder: Path, replica_ports: range) -> dict[str, str]:
    """What the processes of a local cluster inherit; the operator's own choices are kept."""
    wanted = proxy_environment(config.http.proxy, folder, replica_ports)
    # Ray starts workers at niceness 15; ours are the service itself, not a batch job beside it.
    wanted["RAY_worker_niceness"] = "0"
    wanted["TMPDIR"] = str(folder)  # a worker that was killed leaves its socket; we remove it here
    if "RAY_AUTH_MODE" not in os.environ:  # else Ray would write a token into the home folder
        wanted |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    chosen = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    return {name: chosen.get(name, value) for name, value in wanted.items()}
