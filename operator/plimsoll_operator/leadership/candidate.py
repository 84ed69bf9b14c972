"""From candidate to leader and back: the steps when a Lease is won, held and lost.

`clusters` runs one candidate per LogCluster; the simulator runs one per simulated operator. A
controller decides only while the Lease is held, and stops deciding before the Lease is given up.
The cause of a term's end determines how long the candidate leaves the Lease to others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from plimsoll_operator.controller.controller_term import Controller, Outcome
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.leadership.lease import Acquired, Lease, LeaseLoss
from plimsoll_operator.reconcile.stall_causes import Cause
from plimsoll_process.waits import cancelled

logger = logging.getLogger("plimsoll.candidate")

OBJECTION_BACKOFF_S = 10.0
ASKED_S = 2.0
ASKED_S_MAX = 10.0
ASKED_AGAIN_S = 0.25
"""Seconds of pause before the second check for objections; `ASKED_S` is the timeout of the first.
The pause doubles after every check, the timeout after every check that timed out; both have a
bound. The first timeout is short, so that a lost answer costs little time."""
HAND_OVER_S = 12.0
ALONE_S = 0.05
STALLED_BACKOFF_S = 10.0
KEPT_S_MAX = 300.0
"""The longest time in seconds for which an operator keeps the Lease while a person must choose a
history. Another operator may hear brokers that this one does not, so it first hands over at once.
When it holds the Lease again, no other could decide either, and it keeps the Lease for longer each
time."""
DEPOSED_S = 5.0
DEPOSED_S_MAX = 300.0
STOP_S_MAX = 5.0
_REMEDY = dict.fromkeys(
    (Outcome.STALLED, Outcome.TOO_NEW), "; the status of the LogCluster says what to do"
)
"""Part of the log line about the end of a term, by outcome: where a person finds the remedy."""


class LeadsWithLease(Protocol):
    """The part of a `LedCluster` that its `Candidate` uses."""

    @property
    def controller(self) -> Controller: ...

    async def run(self, vacant_ms: int = 0) -> Outcome: ...

    async def stop(self) -> None: ...

    async def say(self, cause: Cause) -> None: ...


Objection = Callable[[], Awaitable[tuple[str, str] | None]]
"""Function that returns why this operator must not lead the cluster with its present spec, as
(reason, sentence), or None if it may lead. Raises Unavailable if the API server does not answer."""


class Candidate:
    """Makes this operator a candidate for leading one cluster: acquires the Lease, leads, and
    releases it, over and over. Run `forever` as a task; cancel it to step down for good."""

    def __init__(
        self, lease: Lease, leader: LeadsWithLease, objection: Objection, *, alone: bool = False
    ) -> None:
        """Create a candidate. `alone`: True if no other process can lead, so that this one leads
        again at once after it handed over."""
        self._alone = alone
        self._lease = lease
        self._leader = leader
        self._objection = objection
        self._deposed = 0
        # True if the last term ended because a person must choose a history.
        self._waits_for_choice = False
        # For how many seconds to keep the Lease then.
        self._kept_s = 0.0

    async def forever(self) -> None:
        while True:
            acquired = await self._lease.acquire()
            try:
                pause_s = await self._lead(acquired)
            finally:
                await self._lease.release()
            await asyncio.sleep(pause_s)

    async def _lead(self, acquired: Acquired) -> float:
        """Lead from the acquisition of the Lease until it or the controller's term ends. Return for
        how many seconds not to compete for the Lease, so that another operator can take it."""
        logger.info(
            "LogCluster %s: this operator has acquired the Lease and takes over as the controller",
            self._leader.controller.name,
        )
        holding = asyncio.ensure_future(self._lease.hold(self._leader.controller.confirm))
        loop, vacant_ms = asyncio.get_running_loop(), acquired.vacant_ms or 0
        until_s = loop.time() + self._kept_s
        try:
            while True:
                self._waits_for_choice = False
                pause_s = await self._term(holding, vacant_ms)
                if not self._waits_for_choice:
                    self._kept_s = 0.0
                    return pause_s
                if loop.time() >= until_s:
                    self._kept_s = min(max(2 * self._kept_s, 2 * pause_s), KEPT_S_MAX)
                    return pause_s
                await asyncio.wait([holding], timeout=pause_s)
                vacant_ms = 0
        finally:
            await cancelled(holding)

    async def _term(self, holding: asyncio.Future[LeaseLoss], vacant_ms: int) -> float:
        """Lead until the Lease or the controller's term ends. Return for how many seconds to pause
        before the next term."""
        against = await self._asked(holding)
        if holding.done():
            logger.warning(
                "LogCluster %s: this operator lost the Lease before it led as controller "
                "(%s); it tries to acquire the Lease again",
                *(self._leader.controller.name, holding.result().value),
            )
            return 0.0
        if against is not None:
            reason, sentence = against
            await self._leader.say(Cause(reason=reason, message=sentence, serves=False))
            return OBJECTION_BACKOFF_S
        leading = asyncio.ensure_future(self._leader.run(vacant_ms))
        try:
            watched: set[asyncio.Future[Any]] = {holding, leading}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                return await self._after(leading.result(), holding)
            logger.warning(
                "LogCluster %s: this operator lost the Lease and stops leading as controller "
                "(%s); the operator that gets the Lease next takes over by itself",
                *(self._leader.controller.name, holding.result().value),
            )
            return 0.0
        finally:
            if not leading.done():
                await self._leader.stop()
                await asyncio.wait([leading], timeout=STOP_S_MAX)
            await cancelled(leading)

    async def _asked(self, holding: asyncio.Future[LeaseLoss]) -> tuple[str, str] | None:
        """Return the objection to this operator's leading as (reason, sentence), or None if there
        is none. Repeats the check while the API server does not answer. Returns None, too, if the
        Lease is lost meanwhile: `holding` is then done."""
        patience_s, again_s = ASKED_S, ASKED_AGAIN_S
        while True:
            asking = asyncio.ensure_future(self._objection())
            watched: set[asyncio.Future[Any]] = {holding, asking}
            try:
                await asyncio.wait(watched, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await cancelled(asking)
                raise
            if asking.done():
                try:
                    return asking.result()
                except Unavailable as error:
                    logger.info(
                        "LogCluster %s: this operator cannot ask the API server whether it may "
                        "lead, and tries again: %s",
                        self._leader.controller.name,
                        error,
                    )
            else:
                await cancelled(asking)
                patience_s = min(patience_s * 2, ASKED_S_MAX)
            await asyncio.wait([holding], timeout=again_s)
            again_s = min(again_s * 2, ASKED_S)
            if holding.done():
                return None

    async def _after(self, outcome: Outcome, holding: asyncio.Future[LeaseLoss]) -> float:
        logger.warning(
            "LogCluster %s: this operator stopped leading as controller (%s)%s; this operator or "
            "another one tries to lead again by itself",
            *(self._leader.controller.name, outcome.value, _REMEDY.get(outcome, "")),
        )
        if outcome is Outcome.DEPOSED:
            return await self._after_deposition(holding)
        self._deposed = 0
        if outcome is Outcome.STALLED:
            self._waits_for_choice = bool(self._leader.controller.choice)
        if self._alone and outcome is Outcome.HANDED_OVER:
            return ALONE_S
        return {
            Outcome.HANDED_OVER: HAND_OVER_S,
            Outcome.STALLED: STALLED_BACKOFF_S,
            Outcome.TOO_NEW: STALLED_BACKOFF_S,
        }.get(outcome, 1.0)

    async def _after_deposition(self, holding: asyncio.Future[LeaseLoss]) -> float:
        """Handle a deposition of the controller. If the Lease is still held, another process writes
        to the metadata log without it, and the status says so. Return for how many seconds not to
        compete for the Lease."""
        await asyncio.wait([holding], timeout=2.0)
        if holding.done():
            self._deposed = 0
            return 0.0
        self._deposed += 1
        text = (
            "Another controller writes to this cluster's metadata log without holding its "
            "Lease: probably two operators of different releases watch this namespace. Let only "
            "one of them watch it; this one retries at growing intervals."
        )
        await self._leader.say(Cause(reason="TwoControllers", message=text))
        return float(min(DEPOSED_S * 2 ** (self._deposed - 1), DEPOSED_S_MAX))
