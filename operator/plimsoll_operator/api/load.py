"""Decodes user files (YAML) and API objects (JSON) into typed values; an error is a sentence for
the user.

Called by local mode (`-f FILE`) and by the operator's watches. The API server has already validated
its objects; files are not validated, so unknown fields are refused here too.
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
from plimsoll_operator.api.verification_schedule import VerificationSchedule

Resource = (
    LogCluster | Topic | Reassignment | Rebalance | Verification | VerificationSchedule | User
)
R = TypeVar("R", bound=Resource | LogBroker)

MODELS: dict[str, type[Resource]] = {
    "LogCluster": LogCluster,
    "Topic": Topic,
    "Reassignment": Reassignment,
    "Rebalance": Rebalance,
    "Verification": Verification,
    "VerificationSchedule": VerificationSchedule,
    "User": User,
}


UNREADABLE_FIELDS_MAX = 32
_PLACE = re.compile(r"- at `(?:key in )?(\$[^`]*)`")
_IDENTITY = frozenset({"clusterId", "clusterRef", "topicName"})


class Unreadable(Exception):
    """Raised for a text or object that cannot be decoded as one of the product's resources; the
    message says where and why."""


def from_object(body: Any, model: type[R]) -> R:
    """Decode an object of the API server. Fields that `model` lacks, as with a newer CRD, are
    ignored. Raises Unreadable for an invalid object."""
    try:
        return msgspec.convert(body, model)
    except msgspec.ValidationError as error:
        raise Unreadable(str(error)) from error


def readable_part(body: dict[str, Any], model: type[R]) -> tuple[R, frozenset[str]] | None:
    """Decode as much of an invalid object as can be decoded. Return the object without its
    unreadable fields, and the names of the fields of its spec from which something is missing.
    Return None if its metadata, or what identifies it or its cluster, is unreadable, or
    `UNREADABLE_FIELDS_MAX` places or more are. The caller must not create or delete anything
    because a missing field is absent: the object states it."""
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
    """Remove the value at `path` from `body`. If the path leads into a list or a map, remove the
    whole list or map."""
    if path[1] == "storage":
        body["spec"]["storage"] = {"size": "1"}  # required; nothing is created from it
        return
    holder: Any = body
    for name in path:
        if name == path[-1] or "[" in name:
            holder.pop(name.split("[")[0], None)
            return
        holder = holder[name]


def from_yaml(text: str) -> Iterator[Resource]:
    """Yield every resource of the product in the YAML `text`; documents of other API groups are
    skipped. Raises Unreadable for invalid YAML, and at a resource with an unknown kind, an unknown
    field of the spec or an invalid value."""
    try:
        documents = list(yaml.safe_load_all(text))
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # a date or a nesting that the parser rejects
        raise Unreadable(f"The file is not valid YAML: {error}") from error
    for document in documents:
        if isinstance(document, dict) and document.get("apiVersion") == API_VERSION:
            yield _resource(document)


def _resource(document: dict[str, Any]) -> Resource:
    kind = str(document.get("kind"))
    metadata = document.get("metadata")
    name = metadata.get("name", "?") if isinstance(metadata, dict) else "?"
    if kind not in MODELS:
        kinds = ", ".join(MODELS)
        raise Unreadable(f"{kind} {name}: this kind is unknown; known kinds: {kinds}.")
    schema = next(structural(k.spec) for k in KINDS if k.name == kind)
    for field, known in unknown_fields(document.get("spec"), schema, "spec"):
        there_are = f"known fields are {', '.join(known)}" if known else "no field is known here"
        raise Unreadable(f"{kind} {name}: the field {field} is unknown; {there_are}.")
    try:
        return msgspec.convert(document, MODELS[kind])
    except msgspec.ValidationError as error:
        raise Unreadable(f"{kind} {name}: {error}.") from error
