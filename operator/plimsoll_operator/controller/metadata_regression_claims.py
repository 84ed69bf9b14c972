"""Detects a metadata log that went back in time: a broker has applied metadata that the log lacks.

Brokers report the metadata offset that they have applied, with the batch it came from.
`controller_term` passes every report here, and asks before it takes over. A report that contradicts
the log is a claim. A claim stands until its broker reports an offset that fits the log, or is
removed from the cluster. If a claim was not repeated for a long time, the controller waits for its
repetition, and drops the claim only if none comes. This module commits nothing, and does not decide
which of the two histories is right. Source: ARCHITECTURE.md, "The metadata log lives on the
Kubernetes API".
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from plimsoll_core.cluster.model import DismissedCopy
from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_core.messages.requests import Heartbeat, LogPosition, RegisterBroker, Request
from plimsoll_operator.controller.decision_clock import Clock
from plimsoll_operator.controller.metadata_tail import MetadataTail, Standing
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.controller")

EPOCHS_AHEAD_MAX = 1_000_000
"""A claim of a controller epoch that is further ahead than this is ignored as forged. No cluster
has so many terms that the log lacks, and the next term's epoch would be one above the claimed
one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    position: LogPosition
    said_at_ms: int


class Claims:
    """Claims of one cluster's brokers to hold metadata that the log lacks. One object serves all
    terms of a controller. `claim_ms`: milliseconds after which a claim that is not repeated counts
    as old; `listen_ms`: how long `settle` waits for the repetition of old claims."""

    def __init__(self, clock: Clock, *, claim_ms: int, listen_ms: int) -> None:
        self._clock = clock
        self._claim_ms = claim_ms
        self._listen_ms = listen_ms
        self._claims: dict[BrokerId, _Claim] = {}
        self._log: MetadataTail | None = None
        self._heard_enough = asyncio.Event()
        self.dismissed: tuple[DismissedCopy, ...] = ()
        """Copies that a person gave up: between terms they are no claims."""

    @property
    def highest_epoch(self) -> int:
        """Return the highest controller epoch in a claim, 0 without claims. The next term's epoch
        must be above it."""
        return max((claim.position.controller_epoch for claim in self._claims.values()), default=0)

    def hear(
        self, request: Request, tail: MetadataTail, epoch: ControllerEpoch
    ) -> LogPosition | None:
        """Compare the metadata position that a broker reports in this request with the log. If it
        contradicts the log, store it as the broker's claim and return it; the caller then ends the
        term. Return None if the request reports no position, a forged one, or one that fits the
        log, which also withdraws the broker's claim. `tail` and `epoch`: of this controller's
        log."""
        if not isinstance(request, RegisterBroker | Heartbeat) or request.position is None:
            return None
        position = request.position
        if position.controller_epoch > epoch + EPOCHS_AHEAD_MAX:
            logger.warning(
                "broker %d reports metadata of controller epoch %d, which is implausibly far "
                "beyond epoch %d of the metadata log; the controller ignores the report; find "
                "out which process runs as that broker",
                *(request.broker_id, position.controller_epoch, epoch),
            )
            return None
        standing = _standing(tail, position)
        if not _contradicts(standing) and position.controller_epoch <= epoch:
            self._claims.pop(request.broker_id, None)
            return None
        logger.warning(
            "broker %d has metadata up to offset %d (controller epoch %d), but the metadata log "
            "ends at offset %d (epoch %d): the broker's metadata is %s; the controller reads the "
            "log again, and the condition Stalled of the LogCluster says if you must act",
            *(request.broker_id, position.applied_offset, position.controller_epoch),
            *(tail.end, epoch, standing.value),
        )
        self._note(request.broker_id, position)
        return position

    def hear_between_terms(self, request: Request) -> None:
        """While `settle` waits for reports, compare the position that a broker reports in this
        request with the log: store one that contradicts it as a claim, and withdraw the broker's
        claim for one that fits. Requests without a position, or at another time, are ignored."""
        if self._log is None or not isinstance(request, RegisterBroker | Heartbeat):
            return
        position = request.position
        if position is None or is_dismissed(self.dismissed, request):
            return
        if _contradicts(_standing(self._log, position)):
            self._note(request.broker_id, position)
            self._heard_enough.set()
            return
        self._claims.pop(request.broker_id, None)
        if not self._against(self._log):
            self._heard_enough.set()

    async def settle(self, tail: MetadataTail) -> str | None:
        """Return a sentence that says why nothing may be committed to the log with this tail, or
        None if no claim contradicts it. If all contradicting claims are older than `claim_ms`, wait
        up to `listen_ms` for their repetition first, and drop those that are not repeated."""
        asked_at_ms = self._clock.now_ms()
        against = self._against(tail)
        if all(claim.said_at_ms + self._claim_ms < asked_at_ms for claim in against.values()):
            if against:
                await self._listen(tail)
            for broker_id, claim in self._against(tail).items():
                if claim.said_at_ms < asked_at_ms:
                    logger.warning(
                        "broker %d once reported metadata that the metadata log lacks, but has "
                        "not repeated this; the controller goes on leading, and stops if the "
                        "broker reports it again; nothing needs to be done",
                        broker_id,
                    )
                    del self._claims[broker_id]
            against = self._against(tail)
        for broker_id, claim in against.items():
            return (
                f"The metadata log went back in time: it ends at {tail.end}, but broker "
                f"{broker_id} holds committed metadata up to {claim.position.applied_offset} that "
                "is not in it. Until the operator has restored the log from the brokers' copies, "
                "it commits no changes; running brokers serve clients, and a broker that "
                "restarts waits."
            )
        return None

    def dismiss(self, copies: tuple[DismissedCopy, ...]) -> None:
        """Hear no claim of these copies between terms, and forget what was claimed of them."""
        self.dismissed = copies
        for copy in copies:
            claim = self._claims.get(copy.broker_id)
            if claim is not None and _ends(copy, claim.position):
                del self._claims[copy.broker_id]

    def _note(self, broker_id: BrokerId, position: LogPosition) -> None:
        self._claims[broker_id] = _Claim(position=position, said_at_ms=self._clock.now_ms())

    def _against(self, tail: MetadataTail) -> dict[BrokerId, _Claim]:
        return {
            broker_id: claim
            for broker_id, claim in self._claims.items()
            if _contradicts(_standing(tail, claim.position))
        }

    async def _listen(self, tail: MetadataTail) -> None:
        """Wait until a broker repeats a claim, all claims are withdrawn, or `listen_ms` has
        passed."""
        self._log = tail
        self._heard_enough.clear()
        try:
            await set_within(self._heard_enough, self._listen_ms / 1000)
        finally:
            self._log = None


def _standing(tail: MetadataTail, position: LogPosition) -> Standing:
    return tail.standing(position.applied_offset, position.nonce, position.term_id)


def is_dismissed(dismissed: tuple[DismissedCopy, ...], request: Request) -> bool:
    """Return True if a broker reports a position at the end of a copy that was dismissed."""
    if not dismissed or not isinstance(request, RegisterBroker | Heartbeat):
        return False
    position, broker_id = request.position, request.broker_id
    return position is not None and any(
        one.broker_id == broker_id and _ends(one, position) for one in dismissed
    )


def is_foreign(tail: MetadataTail, request: Request) -> bool:
    """Return True if a broker reports a position that is not known to be within this log."""
    if not isinstance(request, RegisterBroker | Heartbeat) or request.position is None:
        return False
    return _standing(tail, request.position) not in (Standing.WITHIN, Standing.TOO_OLD)


def _ends(copy: DismissedCopy, position: LogPosition) -> bool:
    return (copy.applied_offset, copy.nonce) == (position.applied_offset, position.nonce)


def _contradicts(standing: Standing) -> bool:
    return standing in (Standing.AHEAD, Standing.DIFFERENT)
