"""Converts typed models into the structural OpenAPI schemas of CRDs.

msgspec produces JSON Schema with references; Kubernetes requires one nested schema with one type
for each value and no null. Called by `crds` (to write the CRDs) and by `load` (to name unknown
fields of a file).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

Schema = dict[str, Any]

_DROPPED = frozenset({"title", "default", "$defs", "propertyNames"})
_REF = "#/$defs/"


def structural(model: type) -> Schema:
    """Return the schema of the msgspec struct `model` as a CRD needs it: without references and
    defaults."""
    (schema,), components = msgspec.json.schema_components((model,), ref_template=_REF + "{name}")
    return _convert(schema, components)


def _convert(schema: Schema, components: dict[str, Schema]) -> Schema:
    if "$ref" in schema:
        target = components[schema["$ref"].removeprefix(_REF)]
        return _convert({**target, **_without(schema, "$ref")}, components)
    if "anyOf" in schema:
        return _convert_union(schema, components)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return _without(schema, "additionalProperties", *_DROPPED)
    out: Schema = {}
    for key, value in schema.items():
        if key in _DROPPED or value == []:
            continue
        out[key] = _convert_member(key, value, components)
    if "enum" in out:
        out["type"] = "string"
    return out


def _convert_member(key: str, value: Any, components: dict[str, Schema]) -> Any:
    if key == "properties":
        return {name: _convert(field, components) for name, field in value.items()}
    if key in {"items", "additionalProperties"}:
        return _convert(value, components)
    if key == "description":
        return " ".join(value.split())
    return value


def _convert_union(schema: Schema, components: dict[str, Schema]) -> Schema:
    members = [m for m in schema["anyOf"] if m.get("type") != "null"]
    rest = _without(schema, "anyOf")
    if len(members) == 1:
        # Unset is absent, never null; an outer description wins over the type's own.
        return _convert({**rest, **members[0], **rest}, components)
    by_type = {m["type"]: m for m in members}
    types = set(by_type)
    if types == {"integer", "string"}:
        text, number = by_type["string"], by_type["integer"]
        return {
            **_without(rest, *_DROPPED),
            **({"minimum": number["minimum"]} if "minimum" in number else {}),
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": text.get("maxLength", 0),
            **({"pattern": text["pattern"]} if "pattern" in text else {}),
        }
    assert types == {"integer", "number", "boolean", "string"}, types
    # No schema type covers all four, and CEL rules cannot see untyped values.  Without a type, each
    # bound applies to its own kind: no map and no list satisfies both its minimum and its maximum.
    # Numbers have no maximum: the API server compares it as a float, and would refuse the largest
    # int64, which Kafka uses for "never".
    return {
        "x-kubernetes-preserve-unknown-fields": True,
        "maxLength": max(m.get("maxLength", 0) for m in members),
        "minProperties": 1,
        "maxProperties": 0,
        "minItems": 1,
        "maxItems": 0,
    }


def _without(schema: Schema, *keys: str) -> Schema:
    return {key: value for key, value in schema.items() if key not in keys}


def unbounded(schema: Schema, path: str = "") -> Iterator[str]:
    """Yield the path of every list, map and string in `schema` that has no maximum size."""
    kind = schema.get("type")
    bounds = {
        "array": ("maxItems",),
        "string": ("maxLength", "enum"),
        "object": ("maxProperties", "properties", "x-kubernetes-preserve-unknown-fields"),
    }
    if kind in bounds and not any(bound in schema for bound in bounds[kind]):
        yield path
    for name, field in schema.get("properties", {}).items():
        yield from unbounded(field, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            yield from unbounded(schema[part], f"{path}[]")


def unknown_fields(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the fields of `value` that `schema` lacks (which the API server would prune), each with
    the fields that exist in its place."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(item, schema.get("items", {}), f"{path}[{index}]")
    if not isinstance(value, dict) or "properties" not in schema:
        return
    for name, field in value.items():
        if name not in schema["properties"]:
            yield f"{path}.{name}", tuple(schema["properties"])
        else:
            yield from unknown_fields(field, schema["properties"][name], f"{path}.{name}")
