"""The operator's configuration as the engine and the ingress take it."""

import os
from dataclasses import fields

from outrider.actors.engine.config import EngineConfig
from outrider.actors.errors import InvalidConfig
from outrider.cluster.api.middleware.keys import Policy, key_ring
from outrider.cluster.api.service import ApiLimits
from outrider.cluster.config.config import Config
from outrider.cluster.deploy.proxy.environment import TOKEN_VARIABLE


def engine_config(config: Config, num_replicas: int = 1) -> EngineConfig:
    """What the engine is started with, beside so many on this machine. Raises InvalidConfig."""
    return EngineConfig(
        target=config.model.target_path.resolve(),
        draft=config.draft_path and config.draft_path.resolve(),
        options=config.engine,
        num_replicas=num_replicas,
    )


def api_limits(config: Config) -> ApiLimits:
    """What one HTTP request may ask."""
    return ApiLimits(
        **{limit.name: getattr(config.http, limit.name) for limit in fields(ApiLimits)}
    )


def max_requests(config: Config) -> int:
    """How many requests a replica answers at once: more would not even find room in the queue."""
    most = config.engine.batch(on_device=True) + config.engine.max_waiting
    return config.http.max_requests or most


def policy(config: Config) -> Policy:
    """Who may ask. Reads the keys, on the machine that serves. Raises InvalidConfig."""
    http = config.http
    keys = key_ring(http.api_keys_file, http.api_keys_env, os.environ)
    if http.requires_keys and not keys:
        raise InvalidConfig(
            f"Got http.requires_keys=true and no API keys where a replica runs, expected "
            f"{http.api_keys_env} in the environment of Ray there, or http.api_keys_file"
        )
    if http.isolates_cache_by_key and not keys:
        raise InvalidConfig("Got http.isolates_cache_by_key=true without API keys, expected some")
    return Policy(
        keys,
        max_requests(config),
        http.request_timeout_s,
        http.body_timeout_s,
        http.isolates_cache_by_key,
        http.origins,
        allowed_hosts=http.hosts,
        proxy_token=os.environ.get(TOKEN_VARIABLE, ""),
        answers_with_id=False,  # Ray Serve does, with the id that it gave or passed on
    )
