"""Heartbeats: once a second, sends the controller what this broker wants (to be unfenced, to shut
down) and takes the controller's answer.

`node.broker` calls `unfence` and `shut_down`, and waits for the answers. A changed wish is sent at
once. This module decides nothing about partitions. Source: docs/protocol.md §3.2.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_broker.clocks import monotonic_ms
from plimsoll_broker.control.controller_client import ControllerClient, HeartbeatResult
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_core.cluster.record_versions import UNDERSTOOD
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerEpoch
from plimsoll_core.messages.brokers import BrokerFigures, LogOutput
from plimsoll_core.messages.drills import DrillOrder
from plimsoll_core.messages.requests import Heartbeat, HeartbeatAnswer, Refused
from plimsoll_core.release import RELEASE
from plimsoll_core.replica.leader_lease import LeaderLease
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.heartbeats")

INTERVAL_MS = 1_000
HURRIED_INTERVAL_MS = 200
ANSWER_MS_MAX = 2_000
LOST_MS_MAX = 9_000
"""The time in ms after which a silent controller is searched for anew, even at the same address."""


class LifetimeOver(Exception):
    """This process must stop: another one has registered with this broker id, or a person gave up
    the metadata that it has applied, and its next start begins with none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatPeers:
    """The components from which heartbeats get the values that they send, and which get what they
    receive. `groups`: returns the number of groups coordinated here, or None before any can be.
    `figures`: returns the figures for the cluster's status, or None. `write_lines`: sets the format
    of log lines that the controller states. `drill`: gets the order of a drill, and returns True if
    the controller is to hear at once that it was taken."""

    groups: Callable[[], int | None] = lambda: None
    figures: Callable[[], BrokerFigures | None] = lambda: None
    write_lines: Callable[[LogOutput], None] = lambda _: None
    drill: Callable[[DrillOrder], bool] = lambda _: False


NOTHING_ASKED = HeartbeatPeers()


class Heartbeats:
    """Sends a heartbeat to the controller every second, and at once when the broker begins to want
    an unfence or a shutdown. `run` is the task; it raises LifetimeOver if the broker epoch is
    stale. `fenced`: True if the controller reports this broker as fenced. `may_stop`: True if it
    has granted the shutdown. `lease`: the leader lease to extend; None without one."""

    def __init__(
        self,
        client: ControllerClient,
        stream: MetadataStream,
        broker_epoch: BrokerEpoch,
        lease: LeaderLease | None = None,
        asked: HeartbeatPeers = NOTHING_ASKED,
    ) -> None:
        self._client = client
        self._stream = stream
        self._broker_epoch = broker_epoch
        self._lease = lease
        self._asked = asked
        self._want_fence = True
        self._want_shutdown = False
        self._kick = asyncio.Event()
        self._changed = asyncio.Event()
        self.fenced = True
        self.may_stop = False
        self.answered_at_ms = monotonic_ms()

    def unfence(self) -> None:
        """Send the wish to be unfenced at once and with every later heartbeat. Call it when all
        logs are loaded."""
        self._want_fence = False
        self._kick.set()

    def shut_down(self) -> None:
        """Send the wish for a controlled shutdown at once and with every later heartbeat."""
        self._want_shutdown = True
        self._kick.set()

    @property
    def silent_ms(self) -> int:
        """The time in ms since a confirmed controller last answered."""
        return monotonic_ms() - self.answered_at_ms

    async def wait_unfenced(self) -> None:
        """Wait until the controller says that this broker is unfenced."""
        while self.fenced:
            self._changed.clear()
            await self._changed.wait()

    async def wait_may_stop(self, *, silent_ms_max: int, all_ms_max: int) -> bool:
        """Wait until the controller grants the shutdown, and return True. Return False after
        `all_ms_max`, or once the controller has been silent for `silent_ms_max` since this call or
        its last answer."""
        end_ms = monotonic_ms() + all_ms_max
        # Only silence from now on counts: the last answer may be a whole interval old.
        self.answered_at_ms = monotonic_ms()
        while not self.may_stop:
            left_ms = min(end_ms - monotonic_ms(), silent_ms_max - self.silent_ms)
            if left_ms <= 0:
                return False
            self._changed.clear()
            await set_within(self._changed, left_ms / 1000)
        return True

    async def run(self) -> None:
        """Send heartbeats until cancelled. Raise LifetimeOver."""
        while True:
            started_ms = monotonic_ms()
            self._kick.clear()
            await self._beat()
            interval_ms = HURRIED_INTERVAL_MS if self._hurried else INTERVAL_MS
            left_ms = max(10, interval_ms - (monotonic_ms() - started_ms))
            await set_within(self._kick, left_ms / 1000)

    def _extend_lease(self, sent_ms: int, result: HeartbeatResult) -> None:
        """Extend the leader lease by a confirmed answer to the heartbeat sent at `sent_ms`
        (monotonic clock), from which the session timeout counts. Do nothing without a lease, or if
        the controller refused or does not state its session timeout."""
        known = isinstance(result.answer, HeartbeatAnswer) and result.session_timeout_ms > 0
        if known and self._lease is not None:
            self._lease.answered(sent_ms, result.session_timeout_ms, result.metadata_end)

    @property
    def _hurried(self) -> bool:
        """True if this broker waits to be unfenced or to be permitted to stop, so that heartbeats
        are sent more often."""
        if self._want_shutdown:
            return not self.may_stop
        return self.fenced and not self._want_fence

    async def _beat(self) -> None:
        """Send one heartbeat; from the answer set `fenced` and `may_stop`, extend the lease and set
        the format of log lines. Without an answer for LOST_MS_MAX, close the connection to the
        controller. Raise LifetimeOver if the broker epoch is stale."""
        heartbeat = Heartbeat(
            broker_id=self._client.peers.broker_id,
            broker_epoch=self._broker_epoch,
            position=self._stream.position,
            want_fence=self._want_fence,
            want_shutdown=self._want_shutdown,
            metadata_versions=UNDERSTOOD,
            release=RELEASE,
            unknown_metadata=self._stream.unknown,
            groups=self._asked.groups(),
            figures=self._asked.figures(),
        )
        sent_ms = monotonic_ms()
        result = await self._client.heartbeat(heartbeat, ANSWER_MS_MAX)
        if result is None:
            if self.silent_ms > LOST_MS_MAX:
                self._client.give_up("the controller has not answered heartbeats for too long")
            return
        if result.confirmed:
            self.answered_at_ms = monotonic_ms()
            self._extend_lease(sent_ms, result)
            if result.log_output is not None:
                self._asked.write_lines(result.log_output)
            if result.drill is not None and self._asked.drill(result.drill):
                self._kick.set()
        match result.answer:
            case HeartbeatAnswer(is_fenced=is_fenced, should_shut_down=should_shut_down):
                if is_fenced != self.fenced:
                    logger.info(
                        "the controller reports this broker as %s",
                        "fenced: it leads no partitions, and clients use other brokers until it "
                        "is unfenced"
                        if is_fenced
                        else "unfenced: it may lead partitions and serve clients",
                    )
                self.fenced = is_fenced
                self.may_stop = self._want_shutdown and should_shut_down
                self._changed.set()
            case Refused(
                reason=Reason.StaleBrokerEpoch.name | Reason.MetadataDismissed.name, message=message
            ):
                raise LifetimeOver(message)
            case other:
                logger.warning(
                    "the controller refused a heartbeat of this broker, and the broker sends the "
                    "next one as usual; if this lasts, other brokers take over its partitions; "
                    "then remove the cause that the controller states: %s",
                    other,
                )
