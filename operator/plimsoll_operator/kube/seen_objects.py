"""The user objects as the watches last delivered them, for the reconcilers.

The cache proves nothing: an object in it may be deleted, and an object that it lacks may exist.
Callers that need proof read from the API server.

If an object's newest version cannot be decoded (its schema is newer, or too lax), its last readable
version stays in the cache. If there is none (the process is new), a LogCluster or Topic is kept
with its readable part, and nothing is made, changed or deleted because of the fields in `missing`.
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
from plimsoll_operator.api.verification_schedule import VerificationSchedule
from plimsoll_operator.kube.kube_api import Object

logger = logging.getLogger("plimsoll.objects")

R = TypeVar(
    "R",
    bound=LogCluster
    | Topic
    | Reassignment
    | Rebalance
    | Verification
    | VerificationSchedule
    | User
    | LogBroker,
)
Key = tuple[str, str]
"""Namespace and name."""
INVALID_SPEC = "InvalidSpec"
_PARTIAL = (LogCluster, Topic)
_OF_CLUSTERS = ("versions", "certificates", "blocked", "metadataRestore")
_OF_SCHEDULES = (
    "lastScheduleTime",
    "scheduleSeen",
    "countedSince",
    "runs",
    "periodsWithoutVerdict",
)
_OF_VERIFICATIONS = ("phase", "continuous")
_CHOICES = (*_OF_CLUSTERS, *_OF_SCHEDULES, *_OF_VERIFICATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object with a newest spec that cannot be decoded. `sentence`: the reason, for the object's
    status; `conditions`: those in its present status."""

    metadata: ObjectMeta
    sentence: str
    conditions: tuple[Condition, ...]

    @property
    def key(self) -> Key:
        return self.metadata.namespace, self.metadata.name


def key_of(body: Object) -> Key:
    """Return (namespace, name) of any object; the namespace of a cluster-scoped object is ""."""
    return body["metadata"].get("namespace") or "", body["metadata"]["name"]


class ObjectShelf(Generic[R]):
    """The cached objects of one kind, by namespace and name."""

    def __init__(self, model: type[R]) -> None:
        self._model = model
        self._found: dict[Key, tuple[R, tuple[Condition, ...]]] = {}
        self._unread: dict[Key, Unread] = {}
        self._missing: dict[Key, frozenset[str]] = {}
        self._verdicts: dict[Key, str] = {}
        # Parts of a status that the operator keeps there: a LogCluster's choices and blocked
        # actions, and the verdicts of a VerificationSchedule.
        self._choices: dict[Key, dict[str, Any]] = {}

    def put(self, body: dict[str, Any]) -> R | None:
        """Cache the newest version of an object. Return the version that reconcilers shall use: the
        newest; if it cannot be decoded, the last readable one with the newest metadata, or else the
        readable part of a LogCluster or Topic; None if there is none of these."""
        try:
            found = from_object(body, self._model)
        except Unreadable as error:
            return self._put_unread(body, str(error))
        self._unread.pop(found.key, None)
        self._missing.pop(found.key, None)
        self._choices[found.key] = _choices(body)
        self._found[found.key] = (found, _conditions(body))
        if self._model is Verification:
            self._verdicts[found.key] = str((body.get("status") or {}).get("verdict") or "")
        return found

    def _put_unread(self, body: dict[str, Any], why: str) -> R | None:
        meta = _metadata(body)
        key = (meta.namespace, meta.name)
        text = f"The spec is invalid, so the operator does not apply it; correct it: {why}."
        unread = Unread(metadata=meta, sentence=text, conditions=_conditions(body))
        before = self._unread.get(key)
        if before is None or before.sentence != text:
            logger.error(
                "%s %s is invalid, so the operator does not apply its spec; correct it: %s",
                *(self._model.__name__, "/".join(key), why),
            )
        self._unread[key] = unread
        self._choices[key] = _choices(body)
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
        found = self._found.pop(key, None)
        return found[0] if found else None

    def get(self, key: Key) -> R | None:
        found = self._found.get(key)
        return found[0] if found else None

    def unread(self, key: Key) -> Unread | None:
        """Return why the object's newest spec cannot be decoded and is not applied, or None if it
        could be decoded."""
        return self._unread.get(key)

    def unread_keys(self) -> list[Key]:
        """Return the keys of all objects with a newest spec that could not be decoded, sorted."""
        return sorted(self._unread)

    def missing(self, key: Key) -> frozenset[str]:
        """Return the names of the spec's fields that could not be decoded; the object that `get`
        returns lacks them. Empty if it is complete."""
        return self._missing.get(key, frozenset())

    def lost(self) -> list[Unread]:
        """Return the objects that are not in the cache because no version and no part of them could
        be decoded. No reconciler sees them, so the caller writes their status."""
        return [unread for key, unread in self._unread.items() if key not in self._found]

    def choices(self, key: Key) -> dict[str, Any]:
        """Return the fields of `_CHOICES` in the object's status as it was last seen: choices of
        the operator that the spec leaves open, blocked actions, and the histories of the metadata
        that a person may confirm. Empty if there are none.

        A new leader must copy them into its status, since writing a status without them would erase
        them. `blocked` holds the time since which each blocked action waits.
        """
        return self._choices.get(key, {})

    def conditions(self, key: Key) -> tuple[Condition, ...]:
        """Return the conditions in the object's status as last seen, () if none of it is cached.
        They are used for their transition times only."""
        found = self._found.get(key)
        return found[1] if found else ()

    def all_conditions(self) -> Iterator[tuple[Key, tuple[Condition, ...]]]:
        """Yield the key and the last seen conditions of every object, undecodable ones included;
        for metrics."""
        for key, (_, conditions) in self._found.items():
            yield key, conditions
        for unread in self.lost():
            yield unread.key, unread.conditions

    def verdict(self, key: Key) -> str:
        """Return the verdict in a Verification's status as last seen, or "" if it has none."""
        return self._verdicts.get(key, "")

    def __iter__(self) -> Iterator[R]:
        return iter([found for found, _ in self._found.values()])


class Objects:
    """The cache of one operator process: one shelf for each kind of user object."""

    def __init__(self) -> None:
        self.clusters = ObjectShelf(LogCluster)
        self.topics = ObjectShelf(Topic)
        self.reassignments = ObjectShelf(Reassignment)
        self.rebalances = ObjectShelf(Rebalance)
        self.verifications = ObjectShelf(Verification)
        self.verification_schedules = ObjectShelf(VerificationSchedule)
        self.users = ObjectShelf(User)
        self.log_brokers = ObjectShelf(LogBroker)


def _metadata(body: dict[str, Any]) -> ObjectMeta:
    """Decode an object's metadata. The API server checks it even if the kind's schema is too lax,
    so this cannot fail."""
    return msgspec.convert(body["metadata"], ObjectMeta)


def _choices(body: dict[str, Any]) -> dict[str, Any]:
    status = body.get("status") or {}
    return {part: status[part] for part in _CHOICES if part in status}


def _conditions(body: dict[str, Any]) -> tuple[Condition, ...]:
    status = body.get("status") or {}
    try:
        return msgspec.convert(status.get("conditions") or [], tuple[Condition, ...])
    except msgspec.ValidationError:
        return ()
