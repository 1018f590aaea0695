"""Where the configuration comes from: defaults, then a YAML file, then the environment, then flags.

Every value keeps its source, so that a bad one is reported as the operator wrote it. Unknown keys
are refused with the nearest accepted name.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from outrider.actors.errors import InvalidConfig
from outrider.actors.executor.fork_server import FORK_SERVER_ENV
from outrider.clients.options import KEY_ENV, URL_ENV
from outrider.cluster.config.config import API_KEYS_ENV, Config

ENV_PREFIX = "OUTRIDER_"
CONFIG_ENV = "OUTRIDER_CONFIG"  # names the file, as --config does
RENAMED = {  # what an older configuration may say
    "engine.is_paired": "engine.is_colocated",
    "engine.has_ngram": "engine.drafters",
}
# Begin as keys do, and are none.
NO_KEYS_OF_OURS = (CONFIG_ENV, API_KEYS_ENV, URL_ENV, KEY_ENV, FORK_SERVER_ENV)


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and where it was written."""

    value: Any
    source: str  # "outrider.yaml", "OUTRIDER_ENGINE_K", "--k"
    is_text: bool  # from the environment or a flag: "4" is a number there


Settings = dict[str, Setting]  # by dotted key, "engine.k"


def fields() -> dict[str, FieldInfo]:
    """Every key and its field."""
    found = {}
    for section, field in Config.model_fields.items():
        assert isinstance(field.annotation, type)
        assert issubclass(field.annotation, BaseModel)
        for name, inner in field.annotation.model_fields.items():
            found[f"{section}.{name}"] = inner
    return found


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Setting]) -> Config:
    """The configuration. Raises InvalidConfig, naming the key and its source."""
    if file is None and environment.get(CONFIG_ENV):
        file = Path(environment[CONFIG_ENV])
    settings: Settings = {}
    if file is not None:
        settings |= from_file(file)
    settings |= from_environment(environment)
    settings |= flags
    return build(settings)


def from_file(path: Path) -> Settings:
    """The settings of a YAML file. Raises InvalidConfig."""
    try:
        tree = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InvalidConfig(f"Cannot read the configuration {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"The configuration {path} is not YAML: {error}") from error
    return from_tree({} if tree is None else tree, str(path))


def from_tree(tree: object, source: str) -> Settings:
    """The settings of sections with keys. Raises InvalidConfig."""
    sections = list(Config.model_fields)
    settings: Settings = {}
    for section, values in _mapping(tree, source).items():
        if section not in sections:
            raise _unknown(section, sections, source)
        for name, value in _mapping(values or {}, f"{section} in {source}").items():
            settings[f"{section}.{name}"] = Setting(value, source, is_text=False)
    return settings


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings of OUTRIDER_SECTION_KEY variables. Raises InvalidConfig."""
    keys = {_variable(key): key for key in fields()}
    settings: Settings = {}
    for name, value in environment.items():
        if not name.startswith(ENV_PREFIX) or name in NO_KEYS_OF_OURS:
            continue
        if name not in keys:
            raise _unknown(name, keys, "the environment")
        settings[keys[name]] = Setting(value, name, is_text=True)
    return settings


def from_assignments(assignments: Iterable[str]) -> Settings:
    """The settings of `--set section.key=value` flags. Raises InvalidConfig."""
    settings: Settings = {}
    for assignment in assignments:
        key, sign, value = assignment.partition("=")
        if not sign:
            raise InvalidConfig(f"Got --set {assignment!r}, expected section.key=value")
        settings[key.strip()] = Setting(value.strip(), f"--set {key.strip()}", is_text=True)
    return settings


def build(settings: Mapping[str, Setting]) -> Config:
    """The tree of these settings over the defaults. Raises InvalidConfig."""
    known = fields()
    tree: dict[str, dict[str, Any]] = {}
    for key, setting in settings.items():
        if key not in known:
            raise _unknown(key, known, setting.source)
        section, name = key.split(".")
        tree.setdefault(section, {})[name] = _value(key, setting, known[key])
    return Config.model_validate(tree)


def _value(key: str, setting: Setting, field: FieldInfo) -> Any:
    """One value, of its field's type. A file's values have types; text is read as the field's."""
    adapter: TypeAdapter[Any] = TypeAdapter(_annotated(field))
    try:
        if setting.is_text:
            return adapter.validate_strings(setting.value)
        strict = not isinstance(setting.value, str)  # paths are written as strings
        return adapter.validate_python(setting.value, strict=strict)
    except ValidationError:
        raise InvalidConfig(
            f"Got {key}={setting.value!r} from {setting.source}, expected {field.description}"
        ) from None


def _annotated(field: FieldInfo) -> Any:
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InvalidConfig(f"Got {value!r} as {where}, expected names with values")
    return value


def _variable(key: str) -> str:
    return ENV_PREFIX + key.replace(".", "_").upper()


def _unknown(name: str, known: Iterable[str], source: str) -> InvalidConfig:
    renamed = RENAMED | {_variable(old): _variable(new) for old, new in RENAMED.items()}
    if name in renamed:
        return InvalidConfig(f"Got {name} from {source}, which is now called {renamed[name]}")
    near = difflib.get_close_matches(name, list(known), 1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else f", expected among {', '.join(known)}"
    return InvalidConfig(f"Got the unknown key {name} from {source}{hint}")
