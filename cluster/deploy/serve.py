"""The Serve deployment: one replica is one engine, HTTP ingress and coordinator in one process.

A Serve configuration file names `build`: `import_path: outrider.cluster.deploy.serve:build`.
"""

import asyncio
import contextlib
import logging
import os
import sys
import traceback
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve._private import replica
from ray.serve.schema import LoggingConfig

from outrider.actors.errors import OutriderError, WorkerLost
from outrider.actors.executor import heap
from outrider.cluster.api.app import create_app
from outrider.cluster.api.metrics.collector import ServiceCollector
from outrider.cluster.api.middleware.traffic import HAND_BACK_S, Traffic
from outrider.cluster.api.service import Service
from outrider.cluster.config import sources
from outrider.cluster.config.config import Config
from outrider.cluster.deploy.placement import cluster_bundles
from outrider.cluster.deploy.progress_board import Failure
from outrider.cluster.deploy.proxy.environment import LOOPBACK, TOKEN_VARIABLE
from outrider.cluster.deploy.ray_exporter import Exporter
from outrider.cluster.deploy.sizing import bundles_of, replicas_on, scaling_options

DEPLOYMENT = "engine"
HEADROOM = 64  # requests beside those that work: health, metrics, refusals
HEALTH_CHECK_PERIOD_S = 2.0  # three failures in a row and Serve replaces the replica

log = logging.getLogger("outrider.serve")


class EngineReplica:
    """Starts an engine in its placement group, serves it, stops it."""

    def __init__(self, config: Config, bundles: list[dict[str, float]], board: Any | None) -> None:
        # The coordinator runs no model. Not through runtime_env: its workers would inherit that.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        _go_without_torch()
        heap.pause()
        if TOKEN_VARIABLE in os.environ:
            _stay_on_loopback()
        from outrider.cluster.deploy.settings import api_limits

        self._config = config
        self._bundles = bundles
        self._board = board
        self._traffic = Traffic()
        self._exporting: asyncio.Task[None] | None = None
        self._service = Service(
            config.model.served_name,
            api_limits(config),
            sees_clients=config.http.shows_client_addresses,
            response_template=config.http.response_template,
        )

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """Serve awaits this once, before it sends requests."""
        from outrider.cluster.deploy.settings import policy

        try:
            rules = policy(self._config)
            self._service.engine = await self._start()
            log.info("answers are read as %s", self._service.reply_format)
            heap.freeze()
        except Exception as error:
            if self._board is not None:
                with contextlib.suppress(RayError):  # a replacement: nobody reads it any more
                    await self._board.fail.remote(_failure(error))
            raise
        if self._config.http.logs_requests:
            log_requests()
        exporter = Exporter(ServiceCollector(self._service, self._traffic))
        self._exporting = asyncio.create_task(exporter.run())
        return create_app(self._service, rules, self._traffic)

    async def drain(self) -> None:
        """Take no more requests; return when those in flight are answered or handed back.

        Serve would cut those that outlive its own grace, without a word to the client.
        """
        await self._traffic.drain(self._config.cluster.drain_s)

    async def _start(self) -> Any:
        from outrider.actors.engine.engine import Engine
        from outrider.cluster.deploy.ray_executor import RayExecutor
        from outrider.cluster.deploy.settings import engine_config
        from outrider.cluster.models.local_models import with_local_models

        # Of a cluster that was joined, or Kubernetes': here the models are first needed.
        config = await asyncio.to_thread(with_local_models, self._config, self._say)
        cluster = self._config.cluster
        ports = range(cluster.first_port, cluster.first_port + cluster.num_ports)
        has_tcp = cluster.placement != "STRICT_PACK"
        group = ray.util.get_current_placement_group()
        executor = RayExecutor(group, self._bundles, has_tcp, ports)
        here = ray.get_runtime_context().get_node_id()
        [node] = [each["Resources"] for each in ray.nodes() if each["NodeID"] == here]
        beside = replicas_on(node, self._bundles, cluster)
        return await Engine.start(engine_config(config, beside), executor, self._say)

    def _say(self, line: str) -> None:
        log.info(line)
        if self._board is not None:
            self._board.say.remote(line)

    def check_health(self) -> None:
        """Ray Serve replaces the replica when this raises. Degraded is slower, not down."""
        engine = self._service.engine
        if engine is not None and (health := engine.health()).status == "failed":
            raise WorkerLost(health.reason)

    async def __del__(self) -> None:
        """Serve awaits this when the replica is stopped."""
        if self._exporting is not None:
            self._exporting.cancel()
        engine, self._service.engine = self._service.engine, None
        if engine is not None:
            await engine.stop()


def _go_without_torch() -> None:
    """transformers' tokenizers need none, and with it this process takes four seconds more to
    start.
    """
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # it would say that there is none
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]


def _stay_on_loopback() -> None:
    """Every replica of Serve's has a server for calls of other replicas, which unpickles what it is
    sent, and has no setting for where it listens. On one machine it listens there alone.
    """
    add = replica.add_port_to_grpc_server

    def add_inside(server: Any, address: str) -> int:
        port: int = add(server, address.replace("[::]", LOOPBACK))
        return port

    replica.add_port_to_grpc_server = add_inside


def log_requests() -> None:
    """Write the access log's lines to standard error: the true one, as Serve replaces it."""
    access, handler = logging.getLogger("outrider.access"), logging.StreamHandler(sys.__stderr__)
    handler.setFormatter(logging.Formatter("%(message)s"))
    access.addHandler(handler)
    access.setLevel(logging.INFO)
    access.propagate = False


def _failure(error: Exception) -> Failure:
    is_ours = isinstance(error, OutriderError)
    trace = "" if is_ours else "".join(traceback.format_exception(error))
    return Failure(type(error).__name__, str(error), trace)


def application(
    config: Config, bundles: list[dict[str, float]], board: Any | None = None
) -> serve.Application:
    """The application of this configuration over these bundles."""
    from outrider.cluster.deploy.settings import max_requests

    cluster = config.cluster
    deployment = serve.deployment(
        serve.ingress()(EngineReplica),
        name=DEPLOYMENT,
        **scaling_options(cluster),
        ray_actor_options={"num_cpus": bundles[0]["CPU"]},
        placement_group_bundles=bundles,
        placement_group_strategy=cluster.placement,
        # Ours is the limit that is met first: it answers 429 in our envelope.
        max_ongoing_requests=max_requests(config) + HEADROOM,
        graceful_shutdown_timeout_s=cluster.drain_s + HAND_BACK_S,
        graceful_shutdown_wait_loop_s=0.2,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        max_constructor_retry_count=1 if board is not None else 20,
        logging_config=LoggingConfig(log_level="WARNING", enable_access_log=False),
    )
    app: serve.Application = deployment.bind(config, bundles, board)
    return app


def build(arguments: dict[str, Any]) -> serve.Application:
    """The application of a Serve configuration's `args`. Raises InvalidConfig.

    Whether the cluster can hold it is only asked where `cluster.worker_gpus` has to be found out:
    machines may join later, as those of a cluster that scales do.
    """
    config = sources.build(sources.from_tree(arguments, "args"))
    if config.cluster.worker_gpus == "auto":
        return application(config, cluster_bundles(config.cluster))
    return application(config, bundles_of(config.cluster, 0.0))
