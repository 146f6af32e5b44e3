"""JSON schemas that answers must adhere to. Each holds all that it refers to: nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trtbuild.errors import MeasureError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def validator_of(schema: dict[str, Any]) -> Validator:
    """By the draft that the schema names, else the newest."""
    from jsonschema.validators import validator_for
    from referencing.jsonschema import EMPTY_REGISTRY

    return validator_for(schema)(schema, registry=EMPTY_REGISTRY)


def check_schema(schema: Any, what: str) -> None:
    """Refuses what cannot judge an answer; ``what`` names it.

    Raises:
        MeasureError: no schema, or one that refers to something outside of itself.
    """
    from jsonschema import SchemaError
    from referencing import Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

    if not isinstance(schema, dict):
        raise MeasureError(f"{what} is {schema!r}, neither true nor an object")
    try:
        validator_of(schema).check_schema(schema)
    except SchemaError as error:
        raise MeasureError(f"{what} is no JSON schema: {error.message}") from error
    resource: Resource[Any] = Resource.from_contents(schema, default_specification=DRAFT202012)
    here = resource.id() or ""
    resolver = EMPTY_REGISTRY.with_resource(here, resource).crawl().resolver(here)
    try:
        for reference in _references(schema):
            resolver.lookup(reference)
    except Unresolvable as error:
        raise MeasureError(
            f"{what} refers to {error.ref!r}, which it does not hold", "put it under `$defs`"
        ) from error


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in _REFERENCES and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)
