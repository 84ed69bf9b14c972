"""Writes the statuses of objects: one patch per object, only if it changed. Commits do not wait for
it.

Objects are marked, and rendered when their turn comes, so that a burst of changes costs one write
per object. A change of a condition (first status, bad news, good news after it) is written at once,
several objects at a time, as fast as the API server accepts. A change of figures alone waits for a
fixed refresh rate. The writer has its own API client.

A write states the resourceVersion of the object as seen, or as returned by the previous write. So a
late write cannot reach a later object of the same name, and an operator that was suspended past its
Lease cannot undo newer statuses. An object that matches neither this writer's last write nor the
state before it is written again with the refreshes.

etcd may be restored to a state before the last write, and a watch need not tell of it. So the state
before the last write is expected for `LATE_SECONDS` only, and after `CONFLICTS_SEEN` conflicts over
one seen version the object is read.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from plimsoll_operator.api.cluster_status import LogClusterStatus
from plimsoll_operator.api.conditions import merge
from plimsoll_operator.api.fit import fitted
from plimsoll_operator.api.logbroker import LogBrokerStatus
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.api.rebalance import RebalanceStatus
from plimsoll_operator.api.topic import TopicStatus
from plimsoll_operator.api.user import UserStatus
from plimsoll_operator.api.verification import VerificationStatus
from plimsoll_operator.api.verification_schedule import VerificationScheduleStatus
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Rejected
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import Kind

logger = logging.getLogger("plimsoll.status")

Status = (
    LogClusterStatus
    | TopicStatus
    | ReassignmentStatus
    | RebalanceStatus
    | VerificationStatus
    | VerificationScheduleStatus
    | UserStatus
    | LogBrokerStatus
)
REFRESHES_PER_SECOND = 20
WRITES_AT_ONCE = 8
RETRY_MS = 2_000
CONFLICT_MS = 1_000
"""Delay before a retry after a conflict, in milliseconds. It doubles with each further conflict
over one seen version, up to `CONFLICT_MS_MAX`."""
CONFLICT_MS_MAX = 16_000
CONFLICTS_SEEN = 2
"""Number of conflicts over one seen version after which the object is read before a write. A watch
that is only late tells of the change meanwhile, and a suspended operator finds its Lease lost."""
LATE_SECONDS = 60.0
"""Time in seconds for which the state of an object before this writer's last write counts as seen
late. A resync reads every object twice meanwhile."""
FAILED_MS = 60_000
"""Delay after a bug before a status is rendered again, in milliseconds. A mark renders it
earlier."""
_UNDECLARED = re.compile(r"\.status\.(\w+): field not declared in schema")
_REFUSED = re.compile(r"\bstatus\.(\w+)")
INVALID = 422
"""HTTP status of the API server's answer if an object does not satisfy its schema."""
THROTTLED = 429
THROTTLED_SECONDS = 1.0
"""Pause of a writing task after the API server throttled its write, in seconds."""


class Target(msgspec.Struct, frozen=True):
    kind: Kind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDraft:
    """A status to write.

    `uid`: the object's; a recreated object has no status yet, whatever its predecessor had.

    `generation`: the generation of the spec that the status describes.

    `shown`: the conditions that the object shows now.

    `version`: the object's resourceVersion by the last watch event or list.
    """

    uid: str
    status: Status
    generation: int
    shown: tuple[Condition, ...]
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStatus:
    """The last successful write of an object's status: what was written, and the resourceVersions
    around it."""

    uid: str
    body: dict[str, Any]
    conditions: tuple[Condition, ...]
    versions: tuple[str, str]
    """resourceVersion of the object before the write, as seen by a watch, and the one that the
    write returned."""
    late_until_s: float
    """Time on the event loop's clock until which the first of `versions` is expected."""

    def includes(self, version: str) -> bool:
        """Return True if an object seen with this resourceVersion has this status, or is seen
        late."""
        if version == self.versions[1]:
            return True
        late = asyncio.get_running_loop().time() < self.late_until_s
        return late and version == self.versions[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusConflict:
    """An object of which the API server answered the last `tries` writes with a conflict, while a
    watch showed it with the resourceVersion `seen`."""

    seen: str
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStatus:
    """An object of which the API server rejected the status `tries` times in a row. The status is
    not written again before `until_s`, on the event loop's clock."""

    uid: str
    tries: int
    until_s: float


Render = Callable[[Target], StatusDraft | None]
"""Function that returns the status to write for a target, or None if there is nothing to write or
no such object."""


class StatusFailures(Protocol):
    """Handles bugs met by the `StatusWriter` in rendering or writing one object's status."""

    def met(self, target: Target, error: Exception) -> StatusDraft | None:
        """Record a bug and return the status to write instead, or None to write none. Raise the bug
        if it concerns more than this object."""

    def over(self, target: Target) -> None:
        """Record that the status was rendered and written without a bug."""


class Unconfined:
    """`StatusFailures` that raise every bug, which ends the writer."""

    def met(self, target: Target, error: Exception) -> StatusDraft | None:
        raise error

    def over(self, target: Target) -> None:
        pass


class StatusWriter:
    """Writes the statuses of marked objects. `run` writes until it is cancelled. `mark` may be
    called from the same event loop at any time."""

    def __init__(
        self,
        api: KubeApi,
        render: Render,
        now_ms: Callable[[], int],
        failures: StatusFailures | None = None,
    ) -> None:
        self._api = api
        self._failures = failures or Unconfined()
        self._now_ms = now_ms
        self._render = render
        self._urgent: dict[Target, None] = {}
        """Targets to render as soon as one of the `WRITES_AT_ONCE` tasks is free."""
        self._refreshes: dict[Target, None] = {}
        """Targets that need no write at once: marked without urgency, or with unchanged conditions.
        They are written at the refresh rate."""
        self._busy: dict[Target, bool | None] = {}
        """Targets being written now. The value tells if the target was marked meanwhile: None if
        not, else True if a mark was urgent."""
        self._ready: set[Target] = set()
        """Targets that show the condition Ready as True."""
        self._written: dict[Target, WrittenStatus] = {}
        self._held: dict[Target, HeldStatus] = {}
        """Targets of which the API server rejected the last status."""
        self._conflicts: dict[Target, StatusConflict] = {}
        """Targets of which the last write was a conflict."""
        self._undeclared: dict[Kind, set[str]] = {}
        """Status fields that the installed CRD does not declare because it is of another release,
        as learned from the API server's errors, by kind."""
        self._any_urgent = asyncio.Event()
        """Set if `_urgent` may hold a target."""
        self._any_refresh = asyncio.Event()
        """Set if `_refreshes` may hold a target."""

    def mark(self, target: Target, *, urgent: bool = False) -> None:
        """Request that the object's status is rendered again, and written if it differs. With
        `urgent`, or if the status rendered last was not Ready, it is rendered at once, and written
        at once if its conditions differ. Otherwise it waits for the refresh rate. If the object is
        being written now, the request takes effect afterwards."""
        if target in self._busy:
            self._busy[target] = urgent or bool(self._busy[target])
        elif urgent or (target not in self._ready and target not in self._refreshes):
            self._refreshes.pop(target, None)
            self._urgent[target] = None
            self._any_urgent.set()
        elif target not in self._urgent:
            self._leave_to_refreshes(target)

    def _leave_to_refreshes(self, target: Target) -> None:
        self._refreshes[target] = None
        self._any_refresh.set()

    def forget(self, target: Target) -> None:
        """Forget an object that was deleted or recreated: its marks, its last write and its
        rejections. It is not written to again until a later mark."""
        memories = (self._urgent, self._refreshes, self._written, self._held, self._conflicts)
        for memory in memories:
            memory.pop(target, None)
        self._ready.discard(target)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._refresh())
            for _ in range(WRITES_AT_ONCE):
                group.create_task(self._answer())

    async def _answer(self) -> None:
        """Render urgent targets, until cancelled. A target with changed conditions is written at
        once; another one waits for the refresh rate."""
        while True:
            target = await _first(self._urgent, self._any_urgent)
            await self._turn(target, refresh=False)
            await asyncio.sleep(0)  # rendering many takes long; yield to other tasks

    async def _refresh(self) -> None:
        while True:
            target = await _first(self._refreshes, self._any_refresh)
            if await self._turn(target, refresh=True):
                await asyncio.sleep(1 / REFRESHES_PER_SECOND)

    async def _turn(self, target: Target, *, refresh: bool) -> bool:
        """Call `write` for a target, never twice at a time for one object. If it is marked
        meanwhile, mark it again afterwards. Return what `write` returns."""
        self._busy[target] = None
        try:
            called = await self.write(target, refresh=refresh)
        finally:
            again = self._busy.pop(target)
        if again is not None:
            self.mark(target, urgent=again)
        return called

    async def write(self, target: Target, *, refresh: bool = True) -> bool:
        """Render the status of a target, and write it if it differs from the last write. Return
        True if a request was sent, or may have been before a bug. After a bug the status that
        `failures` returns is written instead, and the target is marked again after `FAILED_MS`.

        Without `refresh`, a status with unchanged conditions is left to the refreshes.
        """
        try:
            draft = self._render(target)
            called = draft is not None and await self._write(target, draft, refresh=refresh)
        except Exception as error:  # noqa: BLE001  # `met` decides, and raises it
            instead = self._failures.met(target, error)
        else:
            self._failures.over(target)
            return called
        self._again_in(FAILED_MS, target, urgent=False)
        try:
            return instead is not None and await self._write(target, instead, refresh=True)
        except Exception as error:  # noqa: BLE001
            self._failures.met(target, error)
            return True

    async def _write(self, target: Target, draft: StatusDraft, *, refresh: bool) -> bool:
        if (known := self._written.get(target)) and known.uid != draft.uid:
            self.forget(target)
            known = None
        if self._is_held(target, draft.uid):
            return False
        before = draft.shown if known is None else known.conditions
        body, conditions = self._body(draft, before)
        if any(c.type == "Ready" and c.status == "True" for c in conditions):
            self._ready.add(target)
        else:
            self._ready.discard(target)
        based = known is not None and known.includes(draft.version)
        if known is not None and based and body == known.body:
            return False
        if not refresh and _condition_key(before) == _condition_key(conditions):
            self._leave_to_refreshes(target)
            return False
        # The newest known version: the last write's if the draft is based on it.
        version = known.versions[-1] if known is not None and based else draft.version
        answer = await self._sent(target, draft, body, version, refresh=refresh)
        if answer is None:
            return True
        self._held.pop(target, None)
        self._conflicts.pop(target, None)
        self._written[target] = WrittenStatus(
            uid=draft.uid,
            body=body,
            conditions=conditions,
            versions=(draft.version, answer["metadata"]["resourceVersion"]),
            late_until_s=asyncio.get_running_loop().time() + LATE_SECONDS,
        )
        return True

    async def _sent(
        self,
        target: Target,
        draft: StatusDraft,
        body: dict[str, Any],
        version: str,
        *,
        refresh: bool,
    ) -> dict[str, Any] | None:
        """Send a status and return the stored object. Return None if that failed; a retry is
        scheduled unless the object is deleted."""
        try:
            version = await self._version(target, draft, version)
            return await self._apply(target, body, version)
        except NotFound:
            self.forget(target)
        except Conflict:
            # The object has changed, was recreated, or etcd was restored. The watch event or this
            # retry renders it again.
            self._again_in(self._conflict(target, draft), target, urgent=not refresh)
        except Rejected as error:
            self._hold(target, draft.uid, error)
        except ApiError as error:
            logger.warning(
                "the operator cannot write the status of %s %s, which stays out of date "
                "meanwhile, and tries again: %s",
                target.kind.kind,
                target.name,
                error,
            )
            self._again_in(RETRY_MS, target, urgent=not refresh)
            if error.status == THROTTLED:
                await asyncio.sleep(THROTTLED_SECONDS)
        return None

    def _conflict(self, target: Target, draft: StatusDraft) -> int:
        """Record that a write was a conflict, and expect nothing of the write before it any more.
        Return the delay before the retry, in milliseconds."""
        self._written.pop(target, None)
        known = self._conflicts.get(target)
        tries = known.tries + 1 if known is not None and known.seen == draft.version else 1
        self._conflicts[target] = StatusConflict(seen=draft.version, tries=tries)
        return min(CONFLICT_MS_MAX, CONFLICT_MS << min(tries - 1, 10))

    async def _version(self, target: Target, draft: StatusDraft, version: str) -> str:
        """Return the resourceVersion under which to write: `version`, or the stored object's after
        `CONFLICTS_SEEN` conflicts. Raises `Conflict` if the draft describes another object or
        generation than the stored one, and any other `ApiError` of a read."""
        known = self._conflicts.get(target)
        if known is None or known.seen != draft.version or known.tries < CONFLICTS_SEEN:
            return version
        found = await self._api.get(target.kind, target.namespace, target.name)
        meta = found["metadata"]
        if (meta["uid"], meta.get("generation")) != (draft.uid, draft.generation):
            raise Conflict(
                409,
                "the stored object is newer than the version that the operator has seen; it "
                "waits for the newer version and tries again",
            )
        stored: str = meta["resourceVersion"]
        return stored

    def _hold(self, target: Target, uid: str, error: ApiError) -> None:
        """Record that the API server rejected a status because it does not fit the CRD. The target
        is marked again after an interval that doubles with each rejection, at most `FAILED_MS`;
        until then its status is not sent."""
        known = self._held.get(target)
        tries = known.tries + 1 if known is not None and known.uid == uid else 1
        ms = min(FAILED_MS, RETRY_MS * 2 ** min(tries, 10))
        until_s = asyncio.get_running_loop().time() + ms / 1000
        self._held[target] = HeldStatus(uid=uid, tries=tries, until_s=until_s)
        logger.error(
            "the API server rejected the status of %s %s/%s, which stays out of date; the operator "
            "tries again in %d s; if a field is unknown, install the CRDs of this release: %s",
            target.kind.kind, target.namespace, target.name, ms // 1000, error,
        )  # fmt: skip
        self._again_in(ms, target, urgent=False)

    def _is_held(self, target: Target, uid: str) -> bool:
        held = self._held.get(target)
        if held is None or held.uid != uid:
            return False
        return asyncio.get_running_loop().time() < held.until_s

    def _again_in(self, ms: int, target: Target, *, urgent: bool) -> None:
        again = partial(self.mark, target, urgent=urgent)
        asyncio.get_running_loop().call_later(ms / 1000, again)

    async def _apply(self, target: Target, body: dict[str, Any], version: str) -> dict[str, Any]:
        """Send a status and return the stored object. Fields that the CRD does not declare are left
        out, since one such field makes the API server reject all. Raise `ApiError` if it is
        rejected for another reason."""
        left_out = self._undeclared.setdefault(target.kind, set())
        place = (target.kind, target.namespace, target.name)
        known = {name: value for name, value in body.items() if name not in left_out}
        try:
            return await self._api.apply_status(*place, known, version=version)
        except ApiError as error:
            unknown = set(_UNDECLARED.findall(str(error))) & known.keys()
            refused = set(_REFUSED.findall(str(error))) & known.keys() - {"conditions"}
            if not unknown and (error.status != INVALID or not refused):
                raise
            logger.warning(
                "the installed CRD of %s does not accept status.%s, so the operator leaves that "
                "out of the status of %s/%s; install the CRDs of this release (API server: %s)",
                target.kind.kind, ", status.".join(sorted(unknown | refused)),
                target.namespace, target.name, error,
            )  # fmt: skip
            left_out.update(unknown)
            known = {name: value for name, value in known.items() if name not in refused}
        rest = {name: value for name, value in known.items() if name not in left_out}
        return await self._api.apply_status(*place, rest, version=version)

    def _body(
        self, draft: StatusDraft, before: tuple[Condition, ...]
    ) -> tuple[dict[str, Any], tuple[Condition, ...]]:
        conditions = merge(before, draft.status.conditions, draft.generation, self._now_ms())
        status = msgspec.structs.replace(
            draft.status, conditions=conditions, observed_generation=draft.generation
        )
        return fitted(_stated(msgspec.to_builtins(status)), type(status)), conditions


async def _first(waiting: dict[Target, None], any_waiting: asyncio.Event) -> Target:
    """Remove and return the target that has waited longest. Wait if there is none."""
    while not waiting:
        any_waiting.clear()
        await any_waiting.wait()
    target = next(iter(waiting))
    del waiting[target]
    return target


def _condition_key(conditions: tuple[Condition, ...]) -> list[tuple[str, str, str, int | None]]:
    """Return the parts of the conditions of which a change is written at once: type, status, reason
    and observed generation, sorted. Messages are not among them."""
    return sorted((c.type, c.status, c.reason, c.observed_generation) for c in conditions)


def _stated(value: Any) -> Any:
    """Return the value without None entries: the API server rejects a null in place of a number."""
    if isinstance(value, dict):
        return {key: _stated(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_stated(one) for one in value]
    return value
