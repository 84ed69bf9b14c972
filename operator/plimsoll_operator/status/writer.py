"""Status out to the API server: one patch per object, only on change, never in the commits' way.

Objects are marked dirty and rendered when their turn comes, so that a storm of changes costs one
write each.  The writer has a client of its own and a fixed rate; it is the only one that writes
status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from plimsoll_operator.api.cluster_status import LogClusterStatus
from plimsoll_operator.api.conditions import merge
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.api.rebalance import RebalanceStatus
from plimsoll_operator.api.topic import TopicStatus
from plimsoll_operator.api.verification import VerificationStatus
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.resources import Kind

logger = logging.getLogger("plimsoll.status")

Status = LogClusterStatus | TopicStatus | ReassignmentStatus | RebalanceStatus | VerificationStatus
WRITES_PER_SECOND = 20
RETRY_MS = 2_000


class StatusApi(Protocol):
    """The part of the client that is used here."""

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: dict[str, Any]
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Target:
    """An object whose status is written."""

    kind: Kind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDraft:
    """A status to be, the spec's generation it speaks of, and the conditions shown before.

    `uid`: an object that was made again shows nothing yet, whatever was written to the one before.
    """

    uid: str
    status: Status
    generation: int
    shown: tuple[Condition, ...]


Render = Callable[[Target], StatusDraft | None]
"""None when there is nothing to say, or no object any more."""


class StatusWriter:
    """`run` writes until it is cancelled; `mark` may be called from the same loop at any time."""

    def __init__(self, api: StatusApi, render: Render, now_ms: Callable[[], int]) -> None:
        self._api = api
        self._now_ms = now_ms
        self._render = render
        self._dirty: dict[Target, None] = {}
        self._written: dict[Target, tuple[str, dict[str, Any]]] = {}
        self._shown: dict[Target, tuple[Condition, ...]] = {}
        self._wake = asyncio.Event()

    def mark(self, target: Target) -> None:
        """The object's status may have changed."""
        self._dirty[target] = None
        self._wake.set()

    def forget(self, target: Target) -> None:
        """The object is gone, or is another one now."""
        for memory in (self._dirty, self._written, self._shown):
            memory.pop(target, None)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._dirty:
                target = next(iter(self._dirty))
                del self._dirty[target]
                if await self.write(target):
                    await asyncio.sleep(1 / WRITES_PER_SECOND)

    async def write(self, target: Target) -> bool:
        """Render and write if it differs from what was written last; whether a call was made."""
        draft = self._render(target)
        if draft is None:
            return False
        if self._written.get(target, (draft.uid,))[0] != draft.uid:
            self.forget(target)
        body, conditions = self._body(target, draft)
        if (draft.uid, body) == self._written.get(target):
            return False
        try:
            await self._api.apply_status(target.kind, target.namespace, target.name, body)
        except NotFound:
            self.forget(target)
            return True
        except ApiError as error:
            logger.warning("status of %s %s: %s", target.kind.kind, target.name, error)
            asyncio.get_running_loop().call_later(RETRY_MS / 1000, self.mark, target)
            return True
        self._written[target] = (draft.uid, body)
        self._shown[target] = conditions
        return True

    def _body(
        self, target: Target, draft: StatusDraft
    ) -> tuple[dict[str, Any], tuple[Condition, ...]]:
        conditions = merge(
            self._shown.get(target, draft.shown),
            draft.status.conditions,
            draft.generation,
            self._now_ms(),
        )
        status = msgspec.structs.replace(
            draft.status, conditions=conditions, observed_generation=draft.generation
        )
        return _stated(msgspec.to_builtins(status)), conditions


def _stated(value: Any) -> Any:
    """Without what is not known: the API server refuses a null where a number belongs."""
    if isinstance(value, dict):
        return {key: _stated(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_stated(one) for one in value]
    return value
