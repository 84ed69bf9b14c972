"""User files (YAML) and API objects (JSON) as typed values, or a sentence about what is wrong.

Called by local mode (`-f FILE`) and by the operator's watches.  The API server has already checked
its objects; files have not been checked, so unknown fields are refused here too.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import yaml

from plimsoll_operator.api import API_VERSION
from plimsoll_operator.api.crds import KINDS
from plimsoll_operator.api.logbroker import LogBroker
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.reassignment import Reassignment
from plimsoll_operator.api.rebalance import Rebalance
from plimsoll_operator.api.schema import structural, unknown_fields
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.api.user import User
from plimsoll_operator.api.verification import Verification

Resource = LogCluster | Topic | Reassignment | Rebalance | Verification | User
R = TypeVar(
    "R", bound=LogCluster | Topic | Reassignment | Rebalance | Verification | User | LogBroker
)

MODELS: dict[str, type[LogCluster | Topic | Reassignment | Rebalance | Verification | User]] = {
    "LogCluster": LogCluster,
    "Topic": Topic,
    "Reassignment": Reassignment,
    "Rebalance": Rebalance,
    "Verification": Verification,
    "User": User,
}


UNREADABLE_FIELDS_MAX = 32
_PLACE = re.compile(r"- at `(?:key in )?(\$[^`]*)`")
_IDENTITY = frozenset({"clusterId", "clusterRef", "topicName"})


class Unreadable(Exception):
    """The text is not a resource of ours; the message says where and why."""


def from_object(body: Any, model: type[R]) -> R:
    """An object as the API server shows it; fields of a newer CRD are ignored."""
    try:
        return msgspec.convert(body, model)
    except msgspec.ValidationError as error:
        raise Unreadable(str(error)) from error


def readable_part(body: dict[str, Any], model: type[R]) -> tuple[R, frozenset[str]] | None:
    """An unreadable object without the fields that cannot be read, and which fields of its spec
    are not whole; None when they are the ones that say which object it is, or whose.

    Nothing may be made or deleted by what is missing: it was stated.
    """
    left = copy.deepcopy(body)
    missing: set[str] = set()
    for _ in range(UNREADABLE_FIELDS_MAX):
        try:
            return msgspec.convert(left, model), frozenset(missing)
        except msgspec.ValidationError as error:
            found = _PLACE.search(str(error))
            path = found.group(1).split(".")[1:] if found else []
            if len(path) < 2 or path[0] != "spec":
                return None
            field = path[1].split("[")[0]
            if field in _IDENTITY:
                return None
            missing.add(field)
            _take_out(left, path)
    return None


def _take_out(body: dict[str, Any], path: list[str]) -> None:
    """Remove what is at `path`; of a list or a map, the whole of it."""
    if path[1] == "storage":
        body["spec"]["storage"] = {"size": "1"}  # required; nothing is made by it
        return
    holder: Any = body
    for name in path:
        if name == path[-1] or "[" in name:
            holder.pop(name.split("[")[0], None)
            return
        holder = holder[name]


def from_yaml(text: str) -> Iterator[Resource]:
    """Every resource of ours in `text`; documents of other API groups are skipped."""
    try:
        documents = list(yaml.safe_load_all(text))
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # a date or a depth it cannot take
        raise Unreadable(f"This is not YAML: {error}") from error
    for document in documents:
        if isinstance(document, dict) and document.get("apiVersion") == API_VERSION:
            yield _resource(document)


def _resource(document: dict[str, Any]) -> Resource:
    kind = str(document.get("kind"))
    metadata = document.get("metadata")
    name = metadata.get("name", "?") if isinstance(metadata, dict) else "?"
    if kind not in MODELS:
        kinds = ", ".join(MODELS)
        raise Unreadable(f"{kind} {name}: there is no such kind; there are {kinds}.")
    schema = next(structural(k.spec) for k in KINDS if k.name == kind)
    for field, known in unknown_fields(document.get("spec"), schema, "spec"):
        there_are = f"there are {', '.join(known)}" if known else "there are none"
        raise Unreadable(f"{kind} {name}: there is no field {field}; {there_are}.")
    try:
        return msgspec.convert(document, MODELS[kind])
    except msgspec.ValidationError as error:
        raise Unreadable(f"{kind} {name}: {error}.") from error
