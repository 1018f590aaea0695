"""What the operator can choose: one frozen tree, every key with its default and what it accepts.

Knows nothing of where values come from (`sources`) nor of models and machines (`preflight`).
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from outrider.actors.engine.config import EngineOptions
from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.demo_models import DEMO, demo_draft, demo_head, demo_target
from outrider.cluster.config.hub_name import hub_name

NO_DRAFT = "none"
API_KEYS_ENV = "OUTRIDER_API_KEYS"
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")  # whoever reaches these is on this machine

Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0)]


def _split(text: str) -> tuple[str, ...]:
    """What commas separate."""
    return tuple(filter(None, map(str.strip, text.split(","))))


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ModelConfig(_Section):
    """Which models, and under which name they are served."""

    target: str = Field(
        default=DEMO,
        description="a model directory, 'demo', or a model of the hub: org/name[@revision]",
    )
    draft: str | None = Field(
        default=None,
        description="a model directory, 'demo', 'none', or a model of the hub; by default the "
        "demo's own, or none",
    )
    name: str | None = Field(
        default=None, min_length=1, description="the served name; by default target's"
    )

    @property
    def target_path(self) -> Path:
        """The target's directory."""
        return demo_target() if self.target == DEMO else Path(self.target)

    @property
    def draft_path(self) -> Path | None:
        """The draft's directory, if there is a draft."""
        if self.draft is None:
            return demo_draft() if self.target == DEMO else None
        if self.draft == NO_DRAFT:
            return None
        return demo_draft() if self.draft == DEMO else Path(self.draft)

    @property
    def served_name(self) -> str:
        """What requests call the model: never a path."""
        on_hub = hub_name(self.target)
        return self.name or (on_hub.repo if on_hub else Path(self.target).resolve().name)


class HttpSection(_Section):
    """Where and within which limits requests come in."""

    host: str = Field(default="127.0.0.1", min_length=1, description="an address to listen on")
    port: int = Field(default=8000, ge=1, le=65535, description="1 ≤ port ≤ 65535")
    proxy: Literal["haproxy", "python"] = Field(
        default="haproxy", description="'haproxy' or 'python': of a local cluster"
    )
    max_body_bytes: Count = Field(default=8 << 20, description="at least 1")
    max_prompts: Count = Field(default=64, description="at least 1: prompts in one request")
    max_choices: Count = Field(default=128, description="at least 1: prompts times n")
    max_logit_bias: Count = Field(default=1024, description="at least 1: ids in one logit_bias")
    max_stop_ids: Count = Field(default=128, description="at least 1: ids in one stop_token_ids")
    max_grammar_bytes: Count = Field(default=64 << 10, description="at least 1: of one grammar")
    grammar_timeout_s: float = Field(
        default=5.0, gt=0, description="above 0: time to compile one grammar"
    )
    max_requests: Count | None = Field(
        default=None,
        description="at least 1: answered at once by each replica; by default as many as the "
        "engine decodes and queues",
    )
    request_timeout_s: float = Field(
        default=600.0, gt=0, description="above 0: time for a whole answer; a request may ask less"
    )
    body_timeout_s: float = Field(
        default=30.0, gt=0, description="above 0: time for a request's whole body to come"
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="a YAML file of names, each with a key, max_concurrent, requests_per_minute "
        "and priority (lower goes first); limits hold per replica",
    )
    api_keys_env: str = Field(
        default=API_KEYS_ENV,
        min_length=1,
        description="the name of a variable with keys: name=key, separated by commas",
    )
    allows_anonymous: bool = Field(
        default=False,
        description="true or false: `outrider serve` may listen beyond loopback without API keys",
    )
    requires_keys: bool = Field(
        default=False,
        description="true or false: a replica that finds no API keys does not start; true where "
        "`outrider serve` joins a cluster and was itself given keys",
    )
    isolates_cache_by_key: bool = Field(
        default=False,
        description="true or false: the KV kept of a prompt serves only the key that it came with",
    )
    cors_origins: str = Field(
        default="",
        description="origins whose pages may call the server from a browser, separated by commas",
    )
    allowed_hosts: str = Field(
        default="",
        description="names that a request's Host and Origin may have, separated by commas; empty: "
        "any. `outrider serve` on a loopback address sets 127.0.0.1, localhost and ::1",
    )
    logs_requests: bool = Field(
        default=True, description="true or false: a line of JSON for each request; never its text"
    )
    response_template: Literal[
        "auto", "none", "hermes", "llama3_json", "mistral", "pythonic", "qwen3_coder"
    ] = Field(
        default="auto",
        description="how the model writes thoughts and calls of tools: 'auto' (as its own "
        "response_template or its chat template shows), 'none' (all is content), 'hermes', "
        "'llama3_json', 'mistral', 'pythonic' or 'qwen3_coder'",
    )

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins of `cors_origins`."""
        return _split(self.cors_origins)

    @property
    def hosts(self) -> frozenset[str]:
        """The names of `allowed_hosts`."""
        return frozenset(name.lower() for name in _split(self.allowed_hosts))

    @property
    def shows_client_addresses(self) -> bool:
        """Whether a replica sees where a request comes from: HAProxy stands in for the client."""
        return self.proxy == "python" or self.host in LOOPBACK_HOSTS


class ClusterSection(_Section):
    """What Ray is asked for."""

    address: str = Field(default="local", description="'local', 'auto' or a cluster's address")
    num_replicas: Count = Field(default=1, description="at least 1: engines behind the port")
    max_replicas: Count | None = Field(
        default=None,
        description="at least num_replicas: as many when there is much to do; by default the "
        "number stays as it is",
    )
    target_requests: Count = Field(
        default=16, description="at least 1: requests in progress, beyond which a replica is added"
    )
    upscale_delay_s: float = Field(default=10.0, ge=0, description="at least 0")
    downscale_delay_s: float = Field(default=300.0, ge=0, description="at least 0")
    max_surge_percent: int = Field(
        default=0,
        ge=0,
        le=100,
        description="0 ≤ % ≤ 100: replicas beyond their number while new ones take over; at 0 the "
        "old ones end first",
    )
    placement: Literal["STRICT_PACK", "PACK", "SPREAD", "STRICT_SPREAD"] = Field(
        default="STRICT_PACK",
        description="a placement strategy: STRICT_PACK, PACK, SPREAD, STRICT_SPREAD",
    )
    placement_timeout_s: float = Field(default=30.0, gt=0, description="above 0")
    coordinator_cpus: Share = Field(default=1.0, description="at least 0: of each replica")
    worker_cpus: Share = Field(default=1.0, description="at least 0: of each draft and target")
    worker_gpus: Share | Literal["auto"] = Field(
        default="auto",
        description="at least 0, or 'auto': one each, or a share where GPUs are fewer",
    )
    first_port: Port = Field(default=20000, description="0 ≤ port ≤ 65535: of workers' TCP range")
    num_ports: Count = Field(default=100, description="at least 1: ports in that range")
    drain_s: float = Field(
        default=10.0, ge=0, description="at least 0: time for requests at shutdown"
    )
    start_timeout_s: float = Field(
        default=600.0, gt=0, description="above 0: time to load the models"
    )
    shows_logs: bool = Field(default=False, description="true or false: workers' logs in ours")
    temp_dir: Path | None = Field(
        default=None, description="Ray's folder; by default one that is removed"
    )


class Config(_Section):
    """Everything."""

    model: ModelConfig = ModelConfig()
    engine: EngineOptions = EngineOptions()
    http: HttpSection = HttpSection()
    cluster: ClusterSection = ClusterSection()

    @model_validator(mode="after")
    def _check(self) -> Self:
        """What says something only together. Raises InvalidConfig."""
        if self.engine.head and self.draft_path is not None:
            raise InvalidConfig(
                f"Got the drafter {self.engine.head} and the draft model {self.model.draft}, "
                "accepted: one of them"
            )
        return self

    @property
    def draft_path(self) -> Path | None:
        """The draft's directory, if there is a draft; a head takes the place of one by default."""
        if self.engine.head and self.model.draft is None:
            return None
        return self.model.draft_path

    @property
    def head_path(self) -> Path | None:
        """The directory of the head that drafts, if one does."""
        head = self.engine.chosen_head
        if head is None or not head.kind.needs_value:
            return None
        return demo_head(head.kind.name) if head.value == DEMO else Path(head.value)
