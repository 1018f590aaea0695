"""What every object on the wire has in common: how requests are read and replies are written."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

T = TypeVar("T")

# Refused at its first mistake: to note each of eight million takes seconds, and gigabytes.
Many = Annotated[list[T], Field(fail_fast=True)]


class Strict(BaseModel):
    """Wrong types and unknown fields are errors; a request does not change after it is read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Reply(BaseModel):
    """What a server answers."""

    model_config = ConfigDict(frozen=True)


def optional_field(description: str, **schema: Any) -> Any:
    """A field that need not be sent; `schema` tells of it what its type does not."""
    return Field(default=None, description=description, json_schema_extra=schema)


def requires_field(field: str) -> dict[str, Any]:
    """The part of a schema that wants an optional field to be there."""
    return {"required": [field], "properties": {field: {"not": {"type": "null"}}}}


def conflict(param: str, message: str) -> PydanticCustomError:
    """Fields that do not go together; `param` is the one to change."""
    return PydanticCustomError(
        "unsupported_combination", "{message}", {"param": param, "message": message}
    )


def omitted_if_none() -> Any:
    """A field of a reply that is left out where there is nothing to say."""
    return Field(default=None, exclude_if=lambda value: value is None)
