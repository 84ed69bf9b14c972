"""Merge rules of patches: which lists are merged as maps or sets, and which maps are atomic.

All other lists are atomic: a patch replaces them as a whole. Source: for built-in kinds, the
`+listType` and `+mapType` markers of k8s.io/api for the fields used here; for custom resources,
`x-kubernetes-list-type` and `x-kubernetes-list-map-keys` of their schemas.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from plimsoll_operator.kube.kube_api import Object

Names = tuple[str, ...]
"""Path to a value in an object: the field names that lead to it. Elements of lists are left out."""
KeysOf = Callable[[Names, list[Any]], tuple[str, ...] | None]
"""Function of (path of a list, the list) that returns the fields that identify its items: `()` for
a set, None for an atomic list."""

_METADATA: dict[Names, tuple[str, ...]] = {
    ("metadata", "ownerReferences"): ("uid",),
    ("metadata", "finalizers"): (),
}
_BY_FIELD: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "conditions": ("type",),
}
_POD_SPEC_ONLY = frozenset({"volumes", "env", "volumeMounts", "containers", "initContainers"})
_DEFAULTS = {"protocol": "TCP"}
_ATOMIC_MAPS = frozenset(
    {
        "selector", "podSelector", "namespaceSelector", "labelSelector", "nodeSelector",
        "fieldRef", "secretKeyRef", "configMapKeyRef",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Merge rules for objects of one kind."""

    keys_of: KeysOf
    atomic_maps: frozenset[str] = frozenset()
    """Names of map fields below `spec` that a patch replaces as a whole."""

    def is_atomic(self, names: Names) -> bool:
        return bool(names) and names[0] == "spec" and names[-1] in self.atomic_maps


def _builtin_keys(names: Names, items: list[Any]) -> tuple[str, ...] | None:
    if names in _METADATA:
        return _METADATA[names]
    if not names or (names[-1] in _POD_SPEC_ONLY and "spec" not in names):
        return None
    if names[-1] == "ports" and items and isinstance(items[0], dict):
        if "containerPort" in items[0]:
            return ("containerPort", "protocol")
        return ("port", "protocol") if len(names) == 2 else None
    return _BY_FIELD.get(names[-1])


BUILT_IN_TOPOLOGY = Topology(keys_of=_builtin_keys, atomic_maps=_ATOMIC_MAPS)


def custom_topology(schema: Object) -> Topology:
    """Return the merge rules that the schema of a custom resource states, together with those of
    metadata."""
    known = _METADATA | dict(_stated(schema, ()))
    return Topology(keys_of=lambda names, _: known.get(names))


def _stated(schema: Object, names: Names) -> Iterator[tuple[Names, tuple[str, ...]]]:
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map":
        yield names, tuple(schema["x-kubernetes-list-map-keys"])
    elif kind == "set":
        yield names, ()
    for name, field in schema.get("properties", {}).items():
        yield from _stated(field, (*names, name))
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            yield from _stated(schema[part], names)


def element(item: Any, keys: tuple[str, ...]) -> str:
    """Return the path component that stands for `item` of a list with the identifying fields
    `keys`: `=` and the JSON of these fields' values, or of the whole item if `keys` is empty (a
    set)."""
    if not keys:
        return "=" + json.dumps(item, sort_keys=True)
    values = [item.get(key, _DEFAULTS.get(key)) for key in keys]
    try:
        return _element_of(*values)
    except TypeError:  # not a name; the body is not validated yet
        return "=" + json.dumps(values)


@functools.lru_cache(maxsize=10_000, typed=True)
def _element_of(*values: object) -> str:
    return "=" + json.dumps(values)
