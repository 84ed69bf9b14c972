"""A custom resource's structural schema, compiled into a function that runs at every write.

Unknown fields are pruned, absent fields get their defaults, and errors are listed as a real API
server lists them. Left out: CEL rules (`x-kubernetes-validations`), which only a real API server
runs, and `allOf`, `oneOf`, `not`, which no schema here uses. Source: "Extend the Kubernetes API
with CustomResourceDefinitions"; go-openapi's sentences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from plimsoll_operator.api_server.status_errors import StatusCause

Schema = dict[str, Any]
Check = Callable[[Any, str, list[StatusCause]], Any]
"""Function of (value, path of the value, list to which errors are added) that returns the value,
pruned and with defaults."""

_INT_OR_STRING = "x-kubernetes-int-or-string"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "integer or string": (int, str),
}
_TAKES_BOOLEANS = frozenset({"object", "array", "string", "boolean"})
"""JSON types of which the Python class excludes booleans, or that are boolean. Other types need a
test of their own, since in Python booleans are integers."""


def compiled(schema: Schema) -> Check:
    """Return a function that prunes, sets defaults in and validates a value by `schema`. It returns
    the new value, and adds each error to the list of causes that it is given."""
    by_type = {"object": _object, "array": _array}
    kind = schema.get("type")
    inner = by_type[kind](schema) if kind in by_type else _same
    bounds = _bounds(schema)
    takes = _type_test(schema)
    nullable = bool(schema.get("nullable"))
    named = "integer or string" if schema.get(_INT_OR_STRING) else kind

    def check(value: Any, path: str, causes: list[StatusCause]) -> Any:
        if value is None and nullable:
            return value
        if not takes(value):
            shown = f'"{_type_name(value)}"'
            text = f"Invalid value: {shown}: {path} in body must be of type {named}: {shown}"
            causes.append(StatusCause(field=path, reason="FieldValueTypeInvalid", message=text))
            return value
        if bounds:
            found = [why for wrong in bounds if (why := wrong(value)) is not None]
            causes.extend(_cause(path, value, why) for why in found)
        return inner(value, path, causes)

    return check


def _same(value: Any, _: str, __: list[StatusCause]) -> Any:
    return value


def _type_test(schema: Schema) -> Callable[[Any], bool]:
    kind = "integer or string" if schema.get(_INT_OR_STRING) else schema.get("type")
    if kind is None:
        return lambda value: True
    types = _PYTHON_TYPES[kind]
    if kind not in _TAKES_BOOLEANS:
        return lambda value: isinstance(value, types) and not isinstance(value, bool)
    return lambda value: isinstance(value, types)


def _is_of_type(schema: Schema, value: Any) -> bool:
    """Return True if the value has the type that the schema states, or the schema states none."""
    kind = "integer or string" if schema.get(_INT_OR_STRING) else schema.get("type")
    if kind is None:
        return True
    return isinstance(value, _PYTHON_TYPES[kind]) and (
        kind in _TAKES_BOOLEANS or not isinstance(value, bool)
    )


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    for name in ("boolean", "string", "object", "array", "integer", "number"):
        if isinstance(value, _PYTHON_TYPES[name]):
            return name
    return type(value).__name__


class _ErrorType(Enum):
    """The `reason` of a StatusCause. `_cause` makes a message of its own form for each."""

    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Why:
    """The error for a value that violates a bound of its schema, such as `maximum`."""

    type: _ErrorType
    text: str


def _cause(path: str, value: Any, why: _Why) -> StatusCause:
    match why.type:
        case _ErrorType.NOT_SUPPORTED:
            message = f"Unsupported value: {json.dumps(value)}: {why.text}"
        case _ErrorType.TOO_MANY:
            message = f"Too many: {len(value)}: {why.text}"
        case _ErrorType.TOO_LONG:
            message = f"Too long: {why.text}"
        case _ErrorType.INVALID:
            message = f"Invalid value: {json.dumps(value)}: {path} in body {why.text}"
    return StatusCause(field=path, reason=why.type.value, message=message)


_Bound = Callable[[Any], _Why | None]


def _bounds(schema: Schema) -> list[_Bound]:
    return [make(schema[key]) for key, make in _BOUNDS.items() if key in schema]


def _only(types: tuple[type, ...], fails: Callable[[Any], bool], why: _Why) -> _Bound:
    """Return a bound that reports `why` for a value of one of `types` for which `fails` is True. It
    accepts values of all other types."""
    return lambda value: (
        why if isinstance(value, types) and not isinstance(value, bool) and fails(value) else None
    )


def _invalid(text: str) -> _Why:
    return _Why(type=_ErrorType.INVALID, text=text)


def _minimum(limit: float) -> _Bound:
    why = _invalid(f"should be greater than or equal to {limit}")
    return _only((int, float), lambda value: value < limit, why)


def _maximum(limit: float) -> _Bound:
    why = _invalid(f"should be less than or equal to {limit}")
    return _only((int, float), lambda value: value > limit, why)


def _multiple_of(factor: float) -> _Bound:
    why = _invalid(f"should be a multiple of {factor}")
    return _only((int, float), lambda value: value % factor != 0, why)


def _min_length(limit: int) -> _Bound:
    why = _invalid(f"should be at least {limit} chars long")
    return _only((str,), lambda value: len(value) < limit, why)


def _max_length(limit: int) -> _Bound:
    why = _Why(type=_ErrorType.TOO_LONG, text=f"may not be more than {limit} bytes")
    return _only((str,), lambda value: len(value) > limit, why)


def _pattern(pattern: str) -> _Bound:
    found = re.compile(pattern)
    why = _invalid(f"should match '{pattern}'")
    return _only((str,), lambda value: found.search(value) is None, why)


def _min_items(limit: int) -> _Bound:
    why = _invalid(f"should have at least {limit} items")
    return _only((list,), lambda value: len(value) < limit, why)


def _max_items(limit: int) -> _Bound:
    why = _Why(type=_ErrorType.TOO_MANY, text=f"must have at most {limit} items")
    return _only((list,), lambda value: len(value) > limit, why)


def _min_properties(limit: int) -> _Bound:
    why = _invalid(f"should have at least {limit} properties")
    return _only((dict,), lambda value: len(value) < limit, why)


def _max_properties(limit: int) -> _Bound:
    why = _Why(type=_ErrorType.TOO_MANY, text=f"must have at most {limit} items")
    return _only((dict,), lambda value: len(value) > limit, why)


def _enum(values: list[Any]) -> _Bound:
    listed = ", ".join(json.dumps(value) for value in values)
    why = _Why(type=_ErrorType.NOT_SUPPORTED, text=f"supported values: {listed}")
    return lambda value: None if value in values else why


def _format(name: str) -> _Bound:
    if name != "date-time":
        return lambda value: None
    why = _invalid("must be of type date-time")
    return _only((str,), lambda value: not _is_date_time(value), why)


def _is_date_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False


_BOUNDS: dict[str, Callable[[Any], _Bound]] = {
    "minimum": _minimum,
    "maximum": _maximum,
    "multipleOf": _multiple_of,
    "minLength": _min_length,
    "maxLength": _max_length,
    "pattern": _pattern,
    "minItems": _min_items,
    "maxItems": _max_items,
    "minProperties": _min_properties,
    "maxProperties": _max_properties,
    "enum": _enum,
    "format": _format,
}


def _object(schema: Schema) -> Check:
    """Return the check of an object: it validates known fields, and prunes unknown ones unless the
    schema preserves them. It also prunes a null in a field that is not nullable."""
    fields = {name: compiled(field) for name, field in schema.get("properties", {}).items()}
    given = {n: f["default"] for n, f in schema.get("properties", {}).items() if "default" in f}
    required = tuple(schema.get("required", ()))
    nullable = {n for n, f in schema.get("properties", {}).items() if f.get("nullable")}
    rest = schema.get("additionalProperties")
    every = compiled(rest) if isinstance(rest, dict) else None
    keeps = bool(schema.get(_PRESERVE)) or rest is True
    if keeps and not (fields or required or every):
        return _same

    def check(value: Any, path: str, causes: list[StatusCause]) -> Any:
        found = {**given, **value} if given.keys() - value.keys() else value
        for name in required:
            if name not in found:
                at = f"{path}.{name}" if path else name
                causes.append(
                    StatusCause(field=at, reason="FieldValueRequired", message="Required value")
                )
        out = {}
        for name, field in found.items():
            inner = fields.get(name, every)
            if field is None and name not in nullable:
                continue
            if inner is not None:
                at = (f"{path}.{name}" if name in fields else f"{path}[{name}]") if path else name
                out[name] = inner(field, at, causes)
            elif keeps:
                out[name] = field
        return out

    return check


def _array(schema: Schema) -> Check:
    inner = compiled(schema.get("items", {}))
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    is_set = schema.get("x-kubernetes-list-type") == "set"

    def check(value: Any, path: str, causes: list[StatusCause]) -> Any:
        out = [inner(item, f"{path}[{index}]", causes) for index, item in enumerate(value)]
        if (keys or is_set) and len(out) > 1:
            _find_duplicates(out, path, keys, causes)
        return out

    return check


def untyped(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Yield a sentence for each value below `path` for which server-side apply rejects the whole
    request: a value of the wrong type, an undeclared field, or a duplicate key of a list."""
    if value is not None and not _is_of_type(schema, value):
        wanted = _APPLY_TYPES.get(schema.get("type", ""), "int or string")
        yield f"{path}: expected {wanted}, got {_type_name(value)}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from untyped(item, schema.get("items", {}), f"{path}[{index}]")
        found: list[StatusCause] = []
        keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        if keys and len(value) > 1:
            _find_duplicates(value, path, keys, found)
        yield from (f"{path}: duplicate entries for key {one.message[17:]}" for one in found)
    elif isinstance(value, dict) and "properties" in schema:
        for name, field in value.items():
            known = schema["properties"].get(name)
            if known is not None:
                yield from untyped(field, known, f"{path}.{name}")
            elif not schema.get(_PRESERVE):
                yield f"{path}.{name}: field not declared in schema"


def unknown_fields(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Yield the path of each field below `path` that the schema does not declare, and that is
    pruned."""
    if schema.get(_PRESERVE) or schema.get("additionalProperties") is True:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(item, schema.get("items", {}), f"{path}[{index}]")
    elif isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        for name, field in value.items():
            at = f"{path}.{name}" if path else name
            inner = known.get(name, rest or None)
            if inner is None:
                yield at
            else:
                yield from unknown_fields(field, inner, at)


_APPLY_TYPES = {
    "integer": "numeric (int or float)",
    "number": "numeric (int or float)",
    "string": "string",
    "boolean": "boolean",
    "array": "list",
    "object": "map",
}


def _find_duplicates(
    items: list[Any], path: str, keys: tuple[str, ...], causes: list[StatusCause]
) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        shown = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
        text = json.dumps(shown, sort_keys=True)
        if text in seen:
            at = f"{path}[{index}]"
            message = f"Duplicate value: {text}"
            causes.append(StatusCause(field=at, reason="FieldValueDuplicate", message=message))
        seen.add(text)
