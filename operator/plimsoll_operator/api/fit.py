"""Changes a status so that it satisfies its own CRD schema and the API server stores it.

Called for every status before it is written: one overlong field makes the API server refuse the
whole status. Texts, lists and maps are cut, numbers become the nearest allowed one, and an optional
value that cannot be made valid is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

CUT = "…"
_MISSING = object()


def fitted(status: dict[str, Any], model: type[msgspec.Struct]) -> dict[str, Any]:
    """Return `status`, in its JSON form, with every value within the bounds that `model` states; an
    optional value that cannot be brought within them is left out. A status within its bounds is
    returned unchanged."""
    found = _fit(status, _info(model))
    assert isinstance(found, dict)
    return found


@cache
def _info(model: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(model)


def _fit(value: Any, info: inspect.Type) -> Any:
    """Return `value` within the bounds of its type `info`, or `_MISSING` if that is impossible."""
    match info:
        case inspect.Metadata():
            fit = _fit(value, info.type)
            keys = (info.extra_json_schema or {}).get("x-kubernetes-list-map-keys")
            return _first_of_each(fit, keys) if keys and isinstance(fit, list) else fit
        case inspect.UnionType():
            return _fit_union(value, info)
        case inspect.StructType():
            return _fit_struct(value, info)
        case inspect.StrType() if isinstance(value, str):
            return _fit_text(value, info)
        case inspect.IntType() | inspect.FloatType() if isinstance(value, int | float):
            low = value if info.ge is None else max(value, info.ge)
            return low if info.le is None else min(low, info.le)
        case inspect.VarTupleType() | inspect.ListType() if isinstance(value, list | tuple):
            some = value if info.max_length is None else value[: info.max_length]
            rows = [_fit(one, info.item_type) for one in some]
            return [one for one in rows if one is not _MISSING]
        case inspect.DictType() if isinstance(value, Mapping):
            return _fit_map(value, info)
        case _:
            return value


def _first_of_each(rows: list[Any], keys: list[str]) -> list[Any]:
    """Return the rows of a list, keeping only the first of those that have the same values in the
    fields `keys`: the API server refuses duplicates in a list of `x-kubernetes-list-type: map`."""
    found: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), row)
    return list(found.values())


def _fit_struct(value: Any, info: inspect.StructType) -> Any:
    if not isinstance(value, Mapping):
        return value
    found = {}
    for field in info.fields:
        if field.encode_name not in value:
            continue
        one = _fit(value[field.encode_name], field.type)
        if one is not _MISSING:
            found[field.encode_name] = one
        elif field.required:
            return _MISSING
    return found


def _fit_text(value: str, info: inspect.StrType) -> Any:
    most = info.max_length
    if most is not None and len(value) > most:
        value = value[: most - len(CUT)] + CUT
    if info.min_length is not None and len(value) < info.min_length:
        return _MISSING
    if info.pattern is not None and re.search(info.pattern, value) is None:
        return _MISSING
    return value


def _fit_map(value: Mapping[str, Any], info: inspect.DictType) -> dict[str, Any]:
    pairs = sorted(value.items())
    if info.max_length is not None:
        pairs = pairs[: info.max_length]
    rows = [(_fit(key, info.key_type), _fit(one, info.value_type)) for key, one in pairs]
    return {key: one for key, one in rows if key is not _MISSING and one is not _MISSING}


def _fit_union(value: Any, info: inspect.UnionType) -> Any:
    """Return `value` within the bounds of that member of the union that has its JSON type."""
    if value is None:
        return None
    for one in info.types:
        bare = one.type if isinstance(one, inspect.Metadata) else one
        if isinstance(bare, _KINDS.get(type(value), ())):
            return _fit(value, one)
    return value


_KINDS: dict[type, tuple[type, ...]] = {
    str: (inspect.StrType,),
    int: (inspect.IntType, inspect.FloatType),
    float: (inspect.FloatType,),
    list: (inspect.VarTupleType, inspect.ListType),
    tuple: (inspect.VarTupleType, inspect.ListType),
    dict: (inspect.StructType, inspect.DictType),
}
