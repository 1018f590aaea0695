"""API keys: where they are read, and whose key a request came with.

Only digests are kept. What a key may do at once is `rate_limiter`'s to know.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.actors.errors import InvalidConfig

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
MIN_SECRET_LEN = 8

MAX_PRIORITY = 1000
FILE_SHAPE = (
    "names, each with a key and, if wanted, max_concurrent, requests_per_minute and priority"
)


@dataclass(frozen=True, slots=True)
class Key:
    """One key: whose it is and what it may do, on each replica."""

    name: str
    digest: bytes  # SHA-256 of the secret
    max_concurrent: int | None = None  # requests at once
    requests_per_minute: float | None = None
    priority: int = 0  # of its requests among those that wait; lower goes first


class KeyRing:
    """All keys of a server; empty, it lets everyone in."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = tuple(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, secret: str) -> Key | None:
        """The key with this secret. Takes as long whichever it is, and if there is none."""
        digest, found = digest_of(secret), None
        for key in self._keys:
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found


class _Entry(BaseModel):
    """One key as the file has it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: Annotated[str, Field(min_length=MIN_SECRET_LEN)]
    max_concurrent: Annotated[int, Field(ge=1)] | None = None
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0


def digest_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def key_ring(file: Path | None, variable: str, environment: Mapping[str, str]) -> KeyRing:
    """The keys of a file and of an environment variable. Raises InvalidConfig."""
    keys = [] if file is None else _from_file(file)
    keys += _from_text(environment.get(variable, ""), variable)
    names, digests = {key.name for key in keys}, {key.digest for key in keys}
    if len(names) < len(keys) or len(digests) < len(keys):
        where = variable if file is None else f"{file} and {variable}"
        raise InvalidConfig(f"Got an API key or its name twice in {where}, expected each once")
    return KeyRing(keys)


def _from_file(path: Path) -> list[Key]:
    """Names with their keys, as YAML."""
    try:
        tree = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InvalidConfig(f"Cannot read the API keys {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError):  # whose message would quote the file
        raise InvalidConfig(f"The API keys {path} are not YAML") from None
    if not isinstance(tree, dict) or not tree:
        raise InvalidConfig(f"Got no names in the API keys {path}, expected {FILE_SHAPE}")
    return [_from_entry(name, entry, path) for name, entry in tree.items()]


def _from_entry(name: Any, entry: Any, path: Path) -> Key:
    """One name's key; a message never shows what stands there."""
    where = f"{path} at {_checked_name(name, str(path))}"
    try:
        read = _Entry.model_validate({"key": entry} if isinstance(entry, str) else entry)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, detail["loc"])) or "the entry"
        raise InvalidConfig(f"{where}: {field}: {detail['msg']}; expected {FILE_SHAPE}") from None
    limits = read.model_dump(exclude={"key"})
    return Key(name, digest_of(read.key), **limits)


def _from_text(text: str, variable: str) -> list[Key]:
    """name=key, separated by commas."""
    keys = []
    for part in filter(None, map(str.strip, text.split(","))):
        name, sign, secret = part.partition("=")
        if not sign or len(secret) < MIN_SECRET_LEN:
            raise InvalidConfig(
                f"Got a part of {variable} that is not name=key with a key of at least "
                f"{MIN_SECRET_LEN} characters; parts are separated by commas"
            )
        keys.append(Key(_checked_name(name, variable), digest_of(secret)))
    return keys


def _checked_name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        # Not shown: someone may have written the key in its place.
        raise InvalidConfig(
            f"Got a key's name in {where} that is not 1 to 64 letters, digits, '.', '_' or '-'"
        )
    return name


@dataclass(frozen=True, slots=True)
class Policy:
    """Keys, limits and deadlines of one replica."""

    keys: KeyRing = field(default_factory=KeyRing)
    max_requests: int = 320  # that work, at once
    request_timeout_s: float = 600.0  # for a whole answer; a request may ask for less
    body_timeout_s: float = 30.0  # for a whole body
    isolates_cache_by_key: bool = False  # what is kept of a prompt is no other key's to find
    cors_origins: tuple[str, ...] = ()  # whose pages may call this server from a browser
    proxy_token: str = ""  # that a request must have of the server's own proxy; empty: none
    allowed_hosts: frozenset[str] = frozenset()  # names it may be asked under; none: any
    answers_with_id: bool = True  # False where the server around the application does

    def __post_init__(self) -> None:
        assert min(self.max_requests, self.request_timeout_s, self.body_timeout_s) > 0
