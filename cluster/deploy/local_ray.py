"""Ray as `outrider serve` needs it: started here or connected to, and left without trace.

Pins what Ray would otherwise decide by itself: no dashboard, no autoscaler, no usage reports, a
token of its own kept in memory, a folder of its own that is removed at the end.
"""

import fcntl
import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from outrider.actors.errors import InvalidConfig
from outrider.actors.executor.fork_server import FORK_SERVER_ENV, ForkServer
from outrider.cluster.config.config import Config
from outrider.cluster.deploy.preflight import local_resources
from outrider.cluster.deploy.proxy.environment import (
    LOOPBACK,
    claimed_ports,
    proxy_environment,
)

LOCAL = "local"
PREFIX, LOCK = "outrider-ray-", "lock"  # of a server's folder
IMPORT_NICENESS = 10  # Ray's start is what is waited for
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
def own_folder() -> Iterator[Path]:
    """A folder that is removed at the end, by us or, were we killed, by the next server.

    Whose folder is locked is alive: the lock ends with its process.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if (lock := _locked(left / LOCK)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    folder = Path(tempfile.mkdtemp(prefix="outrider-new-"))
    (folder / LOCK).touch()
    lock = _locked(folder / LOCK)
    folder = folder.rename(folder.with_name(folder.name.replace("outrider-new-", PREFIX)))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _locked(path: Path) -> int | None:
    """The descriptor that holds its lock; None if another process does, or it is not ours."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def _local(config: Config, replica_ports: range) -> Iterator[None]:
    with ExitStack() as kept:
        folder = config.cluster.temp_dir or kept.enter_context(own_folder())
        folder.mkdir(parents=True, exist_ok=True)
        before = dict(os.environ)
        os.environ |= _local_environment(config, folder, replica_ports)
        server = ForkServer(os.environ, IMPORT_NICENESS, folder)
        kept.callback(server.close)
        os.environ[FORK_SERVER_ENV] = server.address
        import ray  # reads the environment as it is imported

        resources = local_resources()
        try:
            with uninterrupted(), fewer_processes(config.cluster.shows_logs):
                ray.init(
                    address=LOCAL,
                    num_cpus=int(resources["CPU"]),
                    num_gpus=int(resources["GPU"]),
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _node_ip_address=LOOPBACK,
                    logging_level=logging.WARNING,
                    log_to_driver=config.cluster.shows_logs,
                    _temp_dir=str(folder),
                )
            yield
        finally:
            ray.shutdown()
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A signal that would end us waits for the end of the block: a Ray that has half begun leaves
    agents behind. A second one does not wait.
    """
    if threading.current_thread() is not threading.main_thread():  # no signal comes there
        yield
        return
    came = list[int]()
    ends = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) or signal.SIG_DFL for number in ends}

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            restore()
            signal.raise_signal(number)

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    for number in handlers:
        signal.signal(number, keep)
    try:
        yield
    finally:
        restore()
    if came:
        signal.raise_signal(came[0])


@contextmanager
def fewer_processes(shows_logs: bool) -> Iterator[None]:
    """Ray has no setting to leave out its API server, which is waited for, its autoscaler and its
    reader of logs. Here nobody asks the first two, and the third only where logs are shown.
    """
    from ray._private.node import Node

    unused = ["start_api_server", "start_monitor", *([] if shows_logs else ["start_log_monitor"])]
    kept = {name: vars(Node)[name] for name in unused if name in vars(Node)}
    try:
        for name in kept:
            setattr(Node, name, lambda self, **options: None)
        yield
    finally:
        for name, method in kept.items():
            setattr(Node, name, method)


def _local_environment(config: Config, folder: Path, replica_ports: range) -> dict[str, str]:
    """What the processes of a local cluster inherit; the operator's own choices are kept."""
    wanted = proxy_environment(config.http.proxy, folder, replica_ports)
    # Ray starts workers at niceness 15; ours are the service itself, not a batch job beside it.
    wanted["RAY_worker_niceness"] = "0"
    # As on macOS and Windows: this node is 127.0.0.1, and nothing of Ray's listens beyond.
    wanted["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    wanted["TMPDIR"] = str(folder)  # a worker that was killed leaves its socket; we remove it here
    if "RAY_AUTH_MODE" not in os.environ:  # else Ray would write a token into the home folder
        wanted |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    chosen = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    return {name: chosen.get(name, value) for name, value in wanted.items()}
