"""The user's objects as last seen: what the watches feed and the reconcilers read.

Being here proves nothing about existence and being absent even less; a proof takes a read of the
API server afresh.

An object that this version cannot read (its schema is newer, or let something through) stays as it
was last read.  Where that is not known (the process is new) a LogCluster and a Topic stand here
with what can be read of them, and nothing is made, changed or deleted by what is `missing`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from plimsoll_operator.api.load import Unreadable, from_object, readable_part
from plimsoll_operator.api.logbroker import LogBroker
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition, ObjectMeta
from plimsoll_operator.api.reassignment import Reassignment
from plimsoll_operator.api.rebalance import Rebalance
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.api.user import User
from plimsoll_operator.api.verification import Verification
from plimsoll_operator.kube.port import Object

logger = logging.getLogger("plimsoll.objects")

R = TypeVar(
    "R", bound=LogCluster | Topic | Reassignment | Rebalance | Verification | User | LogBroker
)
Key = tuple[str, str]
"""Namespace and name."""
INVALID_SPEC = "InvalidSpec"
_PARTIAL = (LogCluster, Topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object as it is now, of which the spec cannot be read; `sentence` says why."""

    metadata: ObjectMeta
    sentence: str
    conditions: tuple[Condition, ...]

    @property
    def key(self) -> Key:
        return self.metadata.namespace, self.metadata.name


def key_of(body: Object) -> Key:
    """Of any object; one that is in no namespace has ""."""
    return body["metadata"].get("namespace") or "", body["metadata"]["name"]


class Shelf(Generic[R]):
    """All objects of one kind."""

    def __init__(self, model: type[R]) -> None:
        self._model = model
        self._found: dict[Key, tuple[R, tuple[Condition, ...]]] = {}
        self._unread: dict[Key, Unread] = {}
        self._missing: dict[Key, frozenset[str]] = {}
        self._verdicts: dict[Key, str] = {}
        # Of a LogCluster's status: what its operator chose and keeps there, and what waited.
        self._choices: dict[Key, dict[str, Any]] = {}
        self._dated: dict[Key, bool] = {}

    def put(self, body: dict[str, Any]) -> R | None:
        """Remember an object; returns what to go by, None when nothing of it can be read."""
        try:
            found = from_object(body, self._model)
        except Unreadable as error:
            return self._put_unread(body, str(error))
        self._unread.pop(found.key, None)
        self._missing.pop(found.key, None)
        self._choices[found.key] = _choices(body)
        self._dated[found.key] = _dated(body)
        self._found[found.key] = (found, _conditions(body))
        if self._model is Verification:
            self._verdicts[found.key] = str((body.get("status") or {}).get("verdict") or "")
        return found

    def _put_unread(self, body: dict[str, Any], why: str) -> R | None:
        meta = _metadata(body)
        key = (meta.namespace, meta.name)
        text = f"The spec is invalid and not applied: {why}."
        unread = Unread(metadata=meta, sentence=text, conditions=_conditions(body))
        before = self._unread.get(key)
        if before is None or before.sentence != text:
            logger.error("%s %s/%s: %s", self._model.__name__, *key, text)
        self._unread[key] = unread
        self._choices[key] = _choices(body)
        self._dated[key] = _dated(body)
        known = self._found.get(key)
        if known and known[0].metadata.uid == meta.uid and key not in self._missing:
            kept = msgspec.structs.replace(known[0], metadata=meta)
            self._found[key] = (kept, unread.conditions)
            return kept
        self._found.pop(key, None)
        self._missing.pop(key, None)
        left = readable_part(body, self._model) if self._model in _PARTIAL else None
        if left is None:
            return None
        part, self._missing[key] = left
        self._found[key] = (part, unread.conditions)
        return part

    def drop(self, key: Key) -> R | None:
        self._unread.pop(key, None)
        self._missing.pop(key, None)
        self._verdicts.pop(key, None)
        self._choices.pop(key, None)
        self._dated.pop(key, None)
        found = self._found.pop(key, None)
        return found[0] if found else None

    def get(self, key: Key) -> R | None:
        found = self._found.get(key)
        return found[0] if found else None

    def unread(self, key: Key) -> Unread | None:
        """Why the object's spec is not followed."""
        return self._unread.get(key)

    def unread_keys(self) -> list[Key]:
        """The objects whose specs are not followed."""
        return sorted(self._unread)

    def missing(self, key: Key) -> frozenset[str]:
        """The fields of the spec that its owner stated otherwise than `get` returns them."""
        return self._missing.get(key, frozenset())

    def lost(self) -> list[Unread]:
        """The objects of which nothing can be gone by: no status of theirs would be written
        otherwise."""
        return [unread for key, unread in self._unread.items() if key not in self._found]

    def choices(self, key: Key) -> dict[str, Any]:
        """What its status showed of `versions` and `certificates`: whoever writes a status without
        them, because it has not read them yet, takes them away.  And of `blocked`: for since when
        an action waits."""
        return self._choices.get(key, {})

    def dated(self, key: Key) -> bool:
        """Whether an operator wrote its status that does not know `brokers.active`: of 0.1, or a
        build of 0.2 before it.  Its scale tells of no replicas until the field is there."""
        return self._dated.get(key, False)

    def conditions(self, key: Key) -> tuple[Condition, ...]:
        """The conditions that the object showed: only for their transition times."""
        found = self._found.get(key)
        return found[1] if found else ()

    def all_conditions(self) -> Iterator[tuple[Key, tuple[Condition, ...]]]:
        """What every object showed, also one of which nothing can be read: for metrics."""
        for key, (_, conditions) in self._found.items():
            yield key, conditions
        for unread in self.lost():
            yield unread.key, unread.conditions

    def verdict(self, key: Key) -> str:
        """What a Verification showed; empty: none yet."""
        return self._verdicts.get(key, "")

    def __iter__(self) -> Iterator[R]:
        return iter([found for found, _ in self._found.values()])


class Objects:
    """All kinds.  `reconcile/registry.py` holds what else differs between them."""

    def __init__(self) -> None:
        self.clusters = Shelf(LogCluster)
        self.topics = Shelf(Topic)
        self.reassignments = Shelf(Reassignment)
        self.rebalances = Shelf(Rebalance)
        self.verifications = Shelf(Verification)
        self.users = Shelf(User)
        self.log_brokers = Shelf(LogBroker)


def _metadata(body: dict[str, Any]) -> ObjectMeta:
    """The API server has checked it, whatever the kind's schema lets through."""
    return msgspec.convert(body["metadata"], ObjectMeta)


def _choices(body: dict[str, Any]) -> dict[str, Any]:
    status = body.get("status") or {}
    parts = ("versions", "certificates", "blocked")
    return {part: status[part] for part in parts if part in status}


def _dated(body: dict[str, Any]) -> bool:
    brokers = (body.get("status") or {}).get("brokers")
    return brokers is not None and "active" not in brokers


def _conditions(body: dict[str, Any]) -> tuple[Condition, ...]:
    status = body.get("status") or {}
    try:
        return msgspec.convert(status.get("conditions") or [], tuple[Condition, ...])
    except msgspec.ValidationError:
        return ()
