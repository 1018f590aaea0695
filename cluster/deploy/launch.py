"""A served model from configuration to first answer, and back: what `outrider serve` does.

Every wait has an end: a placement, a model or a proxy that does not come is reported, not awaited.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from outrider.actors import errors
from outrider.actors.errors import InvalidConfig, OutriderError
from outrider.cluster.api.middleware.keys import key_ring
from outrider.cluster.config.config import LOOPBACK_HOSTS, Config
from outrider.cluster.deploy.local_ray import LOCAL, connected
from outrider.cluster.deploy.preflight import (
    check_nodes,
    check_port,
    local_resources,
    shown,
)
from outrider.cluster.deploy.probe import Probe
from outrider.cluster.deploy.sizing import bundles_of
from outrider.cluster.models.local_models import check_folders, with_local_models

log = logging.getLogger(__name__)

APPLICATION = "outrider"
POLL_S, CONTROLLER_POLL_S = 0.1, 0.02
PROXY_TIMEOUT_S = 30.0

Report = Callable[[str], None]


@contextmanager
def served(config: Config, report: Report) -> Iterator[Probe]:
    """A running server, which ends with the block. Raises OutriderError."""
    check_folders(config)
    check_port(config.http.host, config.http.port)
    if config.cluster.address == LOCAL:
        check_this_machine(config)
    check_keys(config, report)
    if config.cluster.address == LOCAL:
        config = for_this_machine(with_local_models(config, report))
    else:
        config = requiring_keys(config, os.environ)
    report("starting Ray" if config.cluster.address == LOCAL else "joining the Ray cluster")
    with connected(config):
        from ray import serve

        _check_cluster_name(serve)
        is_deployed = False
        try:
            _deploy(config, report)
            is_deployed = True
            probe = Probe(config.http.host, config.http.port)
            _await_proxy(probe)
            yield probe
        finally:
            if is_deployed:
                report("stopping: requests in flight may finish")
                _drain(config)
            # Not serve.shutdown(): others may use the cluster we joined, and one of our own ends
            # with the connection. A start that failed half-way has nothing to delete.
            with suppress(Exception):
                serve.delete(APPLICATION)


def _drain(config: Config) -> None:
    """Every replica finishes what it has begun; what does not end in time is Serve's to end."""
    from ray import serve

    from outrider.cluster.api.middleware.traffic import HAND_BACK_S
    from outrider.cluster.deploy.serve import DEPLOYMENT

    async def ask() -> None:
        replicas = serve.get_deployment_handle(DEPLOYMENT, APPLICATION)
        async with asyncio.timeout(config.cluster.drain_s + HAND_BACK_S + 1):
            await replicas.broadcast("drain").results_async()

    # Its clients would complain of the loop's end.
    logging.getLogger("ray.serve").setLevel(logging.CRITICAL)
    try:
        asyncio.run(ask())
    except Exception as error:  # whatever it was, the end comes
        log.warning("the replicas could not be asked to drain: %r", error)


def check_this_machine(config: Config) -> str:
    """What a replica takes of a local cluster, in words. Raises InvalidConfig if it cannot."""
    has = local_resources()
    bundles = bundles_of(config.cluster, has["GPU"])
    check_nodes(bundles, config.cluster.placement, config.cluster.num_replicas, [has])
    return f"{'; '.join(map(shown, bundles))} a replica, of {shown(has)} here"


def check_keys(config: Config, report: Report) -> None:
    """Raises InvalidConfig if they cannot be read, or all the network would be let in unasked."""
    http = config.http
    if config.cluster.address == LOCAL:
        has_keys = bool(key_ring(http.api_keys_file, http.api_keys_env, os.environ))
    else:  # those are elsewhere
        has_keys = requiring_keys(config, os.environ).http.requires_keys
    if has_keys or http.requires_keys:
        return
    if http.host in LOOPBACK_HOSTS:
        return
    if not http.allows_anonymous:
        raise InvalidConfig(
            f"Got http.host={http.host} without API keys, expected some (--api-key-file, "
            f"or {http.api_keys_env} in the environment) or http.allows_anonymous=true"
        )
    report(f"no API keys: whoever reaches {http.host}:{http.port} may use the server")


def for_this_machine(config: Config) -> Config:
    """On a loopback address, asked under its names alone: pages of the web have others."""
    http = config.http
    if http.host not in LOOPBACK_HOSTS or http.allowed_hosts:
        return config
    http = http.model_copy(update={"allowed_hosts": ",".join(LOOPBACK_HOSTS)})
    return config.model_copy(update={"http": http})


def requiring_keys(config: Config, environment: Mapping[str, str]) -> Config:
    """For replicas elsewhere, which read their own environment: with keys here they need theirs."""
    http = config.http
    if http.requires_keys or not (http.api_keys_file or environment.get(http.api_keys_env)):
        return config
    http = http.model_copy(update={"requires_keys": True})
    return config.model_copy(update={"http": http})


def _check_cluster_name(serve: Any) -> None:
    running = serve.status().applications
    if APPLICATION in running:
        raise InvalidConfig(
            f"The cluster runs an application named {APPLICATION!r} already; stop it first"
        )


def _deploy(config: Config, report: Report) -> None:
    """Place, load and start. Raises OutriderError with the replica's own reason."""
    import ray
    from ray import serve

    from outrider.cluster.deploy.placement import check_placeable, cluster_bundles
    from outrider.cluster.deploy.progress_board import ProgressBoard
    from outrider.cluster.deploy.serve import application

    bundles = cluster_bundles(config.cluster)
    check_placeable(config.cluster, bundles)
    report("starting Ray Serve")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    proxy = _start_proxy(config)
    board = ray.remote(ProgressBoard).options(num_cpus=0).remote()
    app = application(config, bundles, board)
    target = serve.RunTarget(app, name=APPLICATION, route_prefix="/")
    with _serve_errors():
        serve.run_many(
            [target],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )
    try:
        _await_replicas(config, board, report, proxy)
    finally:
        ray.kill(board)
    _check_proxy(proxy, waits=True)


def _start_proxy(config: Config) -> "Future[None]":
    """Start Ray Serve, and return as soon as replicas can be asked for; its proxy is still
    starting. Raises OutriderError if the start failed already.
    """
    import ray
    from ray import serve
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    started: Future[None] = Future()

    def start() -> None:
        try:
            serve.start(
                http_options={"host": config.http.host, "port": config.http.port},
                logging_config={"log_level": "WARNING", "enable_access_log": False},
            )
            started.set_result(None)
        except BaseException as error:
            started.set_exception(error)

    threading.Thread(target=start, name="serve-start", daemon=True).start()
    while not started.done():
        with suppress(ValueError):  # it is not there yet
            ray.get_actor(SERVE_CONTROLLER_NAME, SERVE_NAMESPACE)
            break
        time.sleep(CONTROLLER_POLL_S)
    _check_proxy(started)
    return started


def _check_proxy(started: "Future[None]", *, waits: bool = False) -> None:
    """Raises OutriderError if it failed: by now, or, if this waits, at all."""
    if waits or started.done():
        with _serve_errors():
            started.result()


@contextmanager
def _serve_errors() -> Iterator[None]:
    """What keeps Ray Serve from starting, as an OutriderError; what a signal raised, as it was."""
    import ray

    try:
        yield
    except SystemError as error:  # Ray waits in C, and an exception that ends that is its cause
        raise (error.__cause__ or error) from None
    except (ray.exceptions.RayError, TimeoutError) as error:
        reason = getattr(error, "cause", None) or error  # an actor's own error, without its trace
        raise OutriderError(f"Ray Serve did not start: {reason}") from error


def _await_replicas(config: Config, board: Any, report: Report, proxy: "Future[None]") -> None:
    import ray
    from ray import serve

    deadline = time.monotonic() + config.cluster.start_timeout_s
    num_read = 0
    while True:
        _check_proxy(proxy)
        lines, failure = ray.get(board.read.remote(num_read))
        num_read += len(lines)
        for line in lines:
            report(line)
        if lines:  # a download may take its time, as long as it goes on
            deadline = time.monotonic() + config.cluster.start_timeout_s
        if failure is not None:
            raise _error_of(failure)
        state = serve.status().applications.get(APPLICATION)
        if state is not None and state.status == "RUNNING":
            return
        if state is not None and state.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            raise OutriderError(f"Ray Serve could not start the server: {state.message}")
        if time.monotonic() > deadline:
            raise InvalidConfig(
                f"The models did not load within {config.cluster.start_timeout_s:g} s "
                "(cluster.start_timeout_s)"
            )
        time.sleep(POLL_S)


def _await_proxy(probe: Probe) -> None:
    """Return once it answers: the proxy learns of a replica a moment after it runs."""
    deadline = time.monotonic() + PROXY_TIMEOUT_S
    while not probe.is_ready:
        if time.monotonic() > deadline:
            raise OutriderError(f"Nothing answers at {probe.url} after {PROXY_TIMEOUT_S:g} s")
        time.sleep(POLL_S)


def _error_of(failure: Any) -> OutriderError:
    """The replica's error, of its own class where that is one of ours."""
    found = getattr(errors, failure.kind, None)
    if isinstance(found, type) and issubclass(found, OutriderError):
        return found(failure.message)
    return OutriderError(
        f"The server failed to start: {failure.kind}: {failure.message}\n{failure.traceback}"
    )
