"""Who may ask what over HTTP: the operator's choices, as the middleware takes them."""

from dataclasses import dataclass, field

from outrider.cluster.api.keys import KeyRing


@dataclass(frozen=True, slots=True)
class Policy:
    """Keys, limits and deadlines of one replica."""

    keys: KeyRing = field(default_factory=KeyRing)
    max_requests: int = 320  # that work, at once
    request_timeout_s: float = 600.0  # for a whole answer; a request may ask for less
    body_timeout_s: float = 30.0  # for a whole body
    isolates_cache_by_key: bool = False  # what is kept of a prompt is no other key's to find
    cors_origins: tuple[str, ...] = ()  # whose pages may call this server from a browser
    answers_with_id: bool = True  # False where the server around the application does

    def __post_init__(self) -> None:
        assert min(self.max_requests, self.request_timeout_s, self.body_timeout_s) > 0
