"""Formats objects as a `Table`, from which `kubectl get` prints: the server chooses the columns.

Custom resources show the columns of their definition (`additionalPrinterColumns`); Events and pods
show the first columns of a real API server; other kinds show name and age. Pure; called by
`serving`. Source: apiextensions-apiserver `pkg/registry/customresource/tableconvertor`, kubernetes
`pkg/printers/internalversion`, apimachinery `pkg/util/duration`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from plimsoll_operator.api.conditions import is_true, milliseconds
from plimsoll_operator.api_server.kinds import Resource
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import Kind

ACCEPT = "as=Table"
_STEP = re.compile(
    r"\.(?P<field>\w+)|\[(?P<index>\d+)\]|\['(?P<quoted>[^']+)'\]"
    r"|\[(?P<union>'[^']+'(?:,'[^']+')+)\]"
    r"|\[\?\(@\.(?P<key>\w+)==[\"'](?P<value>[^\"']*)[\"']\)\]"
)
_AGE: Object = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_Cell = Callable[[Object, int], Any]


def table(resource: Resource, body: Object, now_ms: int) -> Object:
    """Return `body`, a list or one object, as a `meta.k8s.io/v1` Table with the columns of its
    kind."""
    rows = body.get("items", [body])
    columns = _COLUMNS.get(resource.kind) or _stated(resource)
    shown = [
        {
            "cells": [cell(row, now_ms) for _, cell in columns],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": row["metadata"],
            },
        }
        for row in rows
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": body["metadata"] if "items" in body else {},
        "columnDefinitions": [column for column, _ in columns],
        "rows": shown,
    }


def _stated(resource: Resource) -> list[tuple[Object, _Cell]]:
    columns = [_column("Name", lambda row, _: row["metadata"]["name"], format="name")]
    for one in resource.columns or (_AGE,):
        more = {key: one[key] for key in ("description", "priority") if key in one}
        columns.append(_column(one["name"], _cell(one), **more))
    return columns


def _column(name: str, cell: _Cell, **more: Any) -> tuple[Object, _Cell]:
    return {"name": name, "type": "string", "format": "", "description": "", "priority": 0} | (
        more
    ), cell


def _cell(stated: Mapping[str, Any]) -> _Cell:
    path, is_date = stated["jsonPath"], stated["type"] == "date"

    def cell(row: Object, now_ms: int) -> Any:
        found = at(row, path)
        if is_date and isinstance(found, str):
            return age(found, now_ms)
        return found

    return cell


def at(value: Any, path: str) -> Any:
    """Return the first value that the JSONPath `path` selects in `value`, or None if it selects
    none."""
    for step in _STEP.finditer(path):
        value = next(_next(value, step.groupdict()), None)
    return value


def _next(value: Any, step: Mapping[str, str | None]) -> Iterator[Any]:
    names = [step["field"] or (step["quoted"] or "").replace("\\", "")]
    if step["union"]:
        names = [name.strip("'") for name in step["union"].split(",")]
    if isinstance(value, dict):
        yield from (value[name] for name in names if name in value)
    elif isinstance(value, list) and step["index"]:
        yield from value[int(step["index"]) :][:1]
    elif isinstance(value, list) and step["key"]:
        yield from (one for one in value if one.get(step["key"]) == step["value"])


def age(stamp: str, now_ms: int) -> str:
    """Return the time since the timestamp `stamp` as `kubectl` shows it: `90s`, `5m3s`, `2h`,
    `3d`."""
    seconds = max(now_ms - milliseconds(stamp), 0) // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"


def _seen(row: Object, now_ms: int) -> str:
    stamp = row.get("lastTimestamp") or row.get("eventTime") or row["metadata"]["creationTimestamp"]
    return age(stamp, now_ms)


def _about(row: Object, _: int) -> str:
    about = row.get("involvedObject") or row.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


_EVENT = [
    _column("Last Seen", _seen),
    _column("Type", lambda row, _: row.get("type")),
    _column("Reason", lambda row, _: row.get("reason")),
    _column("Object", _about),
    _column("Message", lambda row, _: row.get("message") or row.get("note")),
]
_POD = [
    _column("Name", lambda row, _: row["metadata"]["name"], format="name"),
    _column("Ready", lambda row, _: "1/1" if is_true(row, "Ready") else "0/1"),
    _column("Status", lambda row, _: (row.get("status") or {}).get("phase")),
    _column("Age", _cell(_AGE)),
]
_COLUMNS: dict[Kind, list[tuple[Object, _Cell]]] = {
    resources.EVENTS: _EVENT,
    resources.CORE_EVENTS: _EVENT,
    resources.PODS: _POD,
}
