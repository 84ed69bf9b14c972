"""The user's objects as last seen: what the watches feed and the reconcilers read.

Being here proves nothing about existence and being absent even less; whoever needs proof reads the
API server afresh.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from plimsoll_operator.api.load import Unreadable, from_object
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.reassignment import Reassignment
from plimsoll_operator.api.rebalance import Rebalance
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.api.verification import Verification

logger = logging.getLogger("plimsoll.objects")

R = TypeVar("R", bound=LogCluster | Topic | Reassignment | Rebalance | Verification)
Key = tuple[str, str]


class Shelf(Generic[R]):
    """All objects of one kind."""

    def __init__(self, model: type[R]) -> None:
        self._model = model
        self._found: dict[Key, tuple[R, tuple[Condition, ...]]] = {}

    def put(self, body: dict[str, Any]) -> R | None:
        """Remember an object; one that this version cannot read is logged and left out."""
        try:
            found = from_object(body, self._model)
        except Unreadable as error:
            logger.error("%s %s: %s", self._model.__name__, body["metadata"].get("name"), error)
            return None
        self._found[found.key] = (found, _conditions(body))
        return found

    def drop(self, key: Key) -> R | None:
        found = self._found.pop(key, None)
        return found[0] if found else None

    def get(self, key: Key) -> R | None:
        found = self._found.get(key)
        return found[0] if found else None

    def conditions(self, key: Key) -> tuple[Condition, ...]:
        """The conditions that the object showed: only for their transition times."""
        found = self._found.get(key)
        return found[1] if found else ()

    def __iter__(self) -> Iterator[R]:
        return iter([found for found, _ in self._found.values()])


class Objects:
    """All kinds."""

    def __init__(self) -> None:
        self.clusters = Shelf(LogCluster)
        self.topics = Shelf(Topic)
        self.reassignments = Shelf(Reassignment)
        self.rebalances = Shelf(Rebalance)
        self.verifications = Shelf(Verification)


def _conditions(body: dict[str, Any]) -> tuple[Condition, ...]:
    status = body.get("status") or {}
    try:
        return msgspec.convert(status.get("conditions") or [], tuple[Condition, ...])
    except msgspec.ValidationError:
        return ()
