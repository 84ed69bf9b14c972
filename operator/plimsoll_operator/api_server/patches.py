"""The three patches that clients send: merge, strategic merge, and server-side apply.

Server-side apply is simplified: it keeps the set of fields that each manager last applied, and
removes a field that its manager no longer states unless another manager's set has it. A field
changed by another verb stays in the set of the manager that applied it; a real API server removes
it from there. `managedFields` are not shown. Source: RFC 7386; Kubernetes' "Server-Side Apply" and
"Update API Objects in Place Using kubectl patch".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from plimsoll_operator.api_server.lists import Names, Topology, element
from plimsoll_operator.kube.kube_api import Object

Path = tuple[str, ...]
"""Path to a field or a list element from the object's root. `lists.element` gives the component
that stands for an element."""
Applied = Mapping[str, frozenset[Path]]
"""For each manager of fields: the paths of the fields that it last applied."""

NOT_OWNED = frozenset(
    ("metadata", name)
    for name in (
        "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
        "managedFields",
    )
) | {("apiVersion",), ("kind",)}  # fmt: skip


# --- merge patches --------------------------------------------------------------------------------


def merged(target: Any, patch: Any) -> Any:
    """Return `target` with an RFC 7386 merge patch applied: null removes a field, a list replaces a
    list."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


def strategically_merged(target: Any, patch: Any, topology: Topology, names: Names = ()) -> Any:
    """Return `target` with a strategic merge patch applied: as `merged`, but a list for which
    `topology` has identifying keys is merged item by item. `names`: the path of `target` in the
    object.

    The only supported directive is `$patch: delete` of an item. The order of `$setElementOrder` is
    ignored.
    """
    if isinstance(patch, list):
        keys = topology.keys_of(names, patch)
        if not keys or not isinstance(target, list):
            return [item for item in patch if not _deletes(item)]
        return _merged_items(
            target, patch, keys, partial(strategically_merged, topology=topology, names=names)
        )
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            out.pop(key, None)
        else:
            out[key] = strategically_merged(out.get(key), value, topology, (*names, key))
    return out


def _merged_items(
    target: list[Any], patch: list[Any], keys: tuple[str, ...], merged: Callable[[Any, Any], Any]
) -> list[Any]:
    found = {element(item, keys): item for item in target}
    for item in patch:
        name = element(item, keys)
        if _deletes(item):
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), item)
    return list(found.values())


def _deletes(item: Any) -> bool:
    return isinstance(item, dict) and item.get("$patch") == "delete"


# --- server-side apply ----------------------------------------------------------------------------


def stated(config: Object, topology: Topology) -> dict[Path, Any]:
    """Return the path of every field and list element in `config` that its manager will own, with
    the value of each leaf. A list element itself has the value None."""
    found: dict[Path, Any] = {}
    _state(config, topology, (), (), found)
    for path in NOT_OWNED:
        found.pop(path, None)
    return found


def _state(
    value: Any, topology: Topology, path: Path, names: Names, found: dict[Path, Any]
) -> None:
    """Add to `found` the paths, with their values, of the fields and list elements below
    `value`."""
    if isinstance(value, dict) and value and not topology.is_atomic(names):
        for key, field in value.items():
            if isinstance(field, dict | list):
                _state(field, topology, (*path, key), (*names, key), found)
            else:
                found[(*path, key)] = field
        return
    keys = topology.keys_of(names, value) if isinstance(value, list) else None
    if keys is None or not value:
        found[path] = value
        return
    for item in value:
        at = (*path, element(item, keys))
        found[at] = None
        if keys:
            _state(item, topology, at, names, found)


def applied(live: Any, config: Any, topology: Topology, names: Names = ()) -> Any:
    """Return `live` with every field and list element of `config` set, and all others unchanged. A
    list or map that `topology` calls atomic is replaced as a whole. `names`: the path of `live` in
    the object."""
    if isinstance(config, dict) and isinstance(live, dict) and not topology.is_atomic(names):
        out = dict(live)
        for key, value in config.items():
            has_parts = isinstance(value, dict | list)
            out[key] = (
                applied(live.get(key), value, topology, (*names, key)) if has_parts else value
            )
        return out
    keys = topology.keys_of(names, config) if isinstance(config, list) else None
    if keys is None or not isinstance(live, list):
        return config
    found = {element(item, keys): item for item in live}
    for item in config:
        name = element(item, keys)
        found[name] = applied(found.get(name), item, topology, names)
    return list(found.values())


def without(
    live: Object, gone: frozenset[Path], kept: frozenset[Path], topology: Topology
) -> Object:
    """Return `live` without the fields and list elements at the paths `gone`. A list element that
    contains a path of `kept` stays, and loses only its fields in `gone`."""
    if not gone:
        return live
    left = _without(live, (), (), _Removal(gone, kept, topology))
    assert isinstance(left, dict)
    return left


class _Removal:
    """The paths to remove from one object, in the form that `_without` looks them up in."""

    def __init__(self, gone: frozenset[Path], kept: frozenset[Path], topology: Topology) -> None:
        self.topology = topology
        self._gone = gone
        self._above = {path[:length] for path in gone for length in range(len(path))}
        self._held = {path[:length] for path in kept for length in range(len(path) + 1)}

    def ends(self, path: Path) -> bool:
        return path in self._gone and path not in self._held

    def touches(self, path: Path) -> bool:
        return path in self._above


def _without(value: Any, path: Path, names: Names, removal: _Removal) -> Any:
    """Return `value`, at `path`, without the paths of `removal`; None if nothing is left of it."""
    if not removal.touches(path):
        return value
    if isinstance(value, dict):
        out = {}
        for key, field in value.items():
            at = (*path, key)
            left = None if removal.ends(at) else _without(field, at, (*names, key), removal)
            if left is not None or (field is None and not removal.ends(at)):
                out[key] = left
        return out or None
    keys = removal.topology.keys_of(names, value) if isinstance(value, list) else None
    if keys is None:
        return value
    items = []
    for item in value:
        at = (*path, element(item, keys))
        if not removal.ends(at):
            items.append(_without(item, at, names, removal))
    return items or None


def contested(live: Object, wanted: dict[Path, Any], topology: Topology) -> frozenset[Path]:
    """Return the paths in `wanted` that `live` also has, with another value."""
    present = stated(live, topology)
    return frozenset(
        path for path, value in wanted.items() if path in present and present[path] != value
    )


def disputes(others: Applied, contested_: frozenset[Path]) -> list[str]:
    """Return a line for each contested field that another manager owns: `conflict with "manager":
    .spec.replicas`."""
    return [
        f'conflict with "{manager}": .{".".join(path)}'
        for manager, paths in sorted(others.items())
        for path in sorted(paths & contested_)
    ]
