"""The operator's configuration as the engine and the ingress take it."""

from outrider.actors.engine import EngineConfig
from outrider.actors.sampling import VerificationMode
from outrider.cluster.api.served_engine import ApiLimits
from outrider.cluster.config import Config


def engine_config(config: Config) -> EngineConfig:
    """What the engine is started with. Raises InvalidConfig."""
    options = config.engine.model_dump()
    options["verification"] = VerificationMode(config.engine.verification)
    return EngineConfig(
        target=config.model.target_path.resolve(),
        draft=config.model.draft_path and config.model.draft_path.resolve(),
        **options,
    )


def api_limits(config: Config) -> ApiLimits:
    """What one HTTP request may ask."""
    return ApiLimits(config.http.max_body_bytes, config.http.max_prompts)
