"""CopyReports: tells the controller how many bytes this broker holds of partitions that move.

A leader reports how much there is to copy, a new replica how much it has. Users read it as
progress; no decision depends on it. It is one of the data path's tasks, every two seconds while
anything moves. More slowly, and in turns, a leader also reports its partitions' sizes, on which a
plan's estimates of bytes and time rest, and the lag of each follower in records. Source:
crds/plimsoll.dev_reassignments.yaml, what a Reassignment shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from msgspec.structs import replace

from plimsoll_broker.control.controller_client import ControllerClient, NoController
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.ids import BrokerLifetime
from plimsoll_core.messages.reassignments import CopySize, FollowerLag, ReportCopies

logger = logging.getLogger("plimsoll.copies")

PERIOD_MS = 2_000
ANSWER_MS_MAX = 5_000
COPIES_MAX = 1_000
"""Copies in one report; the others follow in the next ones."""
SIZES_PERIODS = 15
"""Sizes are reported once in so many periods, first as soon as this broker leads a partition."""


class CopyReports:
    """`run` is the task."""

    def __init__(
        self,
        manager: ReplicaManager,
        client: ControllerClient,
        broker: BrokerLifetime,
    ) -> None:
        self._manager = manager
        self._client = client
        self._broker_id, self._broker_epoch = broker
        self._told = 0
        self._sized = 0
        self._sizes_in = 0

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_MS / 1000)
            report = self.report()
            if report is None:
                continue
            try:
                await self._client.command(report, ANSWER_MS_MAX)
            except NoController as error:
                logger.debug("sizes of copies not reported: %s", error)

    def report(self) -> ReportCopies | None:
        """Return the next report, or None if nothing moves and no sizes are due. Many partitions
        take turns."""
        moving = [hosted for hosted in self._manager if self._counts(hosted)]
        sizes: list[Hosted] = []
        if self._sizes_in == 0:
            led = [hosted for hosted in self._manager if self._leads(hosted)]
            sizes, self._sized = _in_turn(led, self._sized)
        if sizes or self._sizes_in:
            self._sizes_in = (self._sizes_in + 1) % SIZES_PERIODS
        if not moving and not sizes:
            return None
        turn, self._told = _in_turn(moving, self._told)
        return ReportCopies(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            copies=tuple(_size(hosted) for hosted in turn),
            sizes=tuple(_led(hosted) for hosted in sizes),
        )

    def _leads(self, hosted: Hosted) -> bool:
        return not hosted.replica.failed and hosted.replica.partition.leader == self._broker_id

    def _counts(self, hosted: Hosted) -> bool:
        partition = hosted.replica.partition
        if not partition.adding or hosted.replica.failed:
            return False
        return partition.leader == self._broker_id or self._broker_id in partition.adding


def _in_turn(found: list[Hosted], told: int) -> tuple[list[Hosted], int]:
    """Return the next portion, and where the one after it begins."""
    if not found:
        return [], 0
    first = told % len(found)
    turn = [*found[first:], *found[:first]][:COPIES_MAX]
    return turn, first + len(turn)


def _size(hosted: Hosted) -> CopySize:
    key = hosted.key
    return CopySize(topic_id=key.topic_id, index=key.index, size=hosted.log.size)


def _led(hosted: Hosted) -> CopySize:
    return replace(_size(hosted), behind=tuple(_behind(hosted)))


def _behind(hosted: Hosted) -> Iterator[FollowerLag]:
    replica = hosted.replica
    if replica.leader is None:
        return
    end = replica.log.log_end_offset
    for broker_id, progress in sorted(replica.leader.followers.items()):
        if progress.log_end is None:
            yield FollowerLag(broker_id=broker_id, records=None)
        elif progress.log_end < end:
            yield FollowerLag(broker_id=broker_id, records=end - progress.log_end)
