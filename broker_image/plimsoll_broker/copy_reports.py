"""Tells the controller how many bytes this broker holds of partitions that move.

A leader tells how much there is to copy, a new replica how much of it has come.  People read it as
progress, and nobody decides on it: what is not told now is told soon.  A task of the data path,
every two seconds while anything moves.
Source: the API's rules for what a Reassignment shows.
"""

from __future__ import annotations

import asyncio
import logging

from plimsoll_broker.controller_client import ControllerClient, NoController
from plimsoll_broker.hosted import Hosted
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.move_messages import CopySize, ReportCopies

logger = logging.getLogger("plimsoll.copies")

PERIOD_MS = 2_000
ANSWER_MS_MAX = 5_000
COPIES_MAX = 1_000
"""In one report; the others come in the next ones."""


class CopyReports:
    """`run` is the task."""

    def __init__(
        self,
        manager: ReplicaManager,
        client: ControllerClient,
        broker: tuple[BrokerId, BrokerEpoch],
    ) -> None:
        self._manager = manager
        self._client = client
        self._broker_id, self._broker_epoch = broker
        self._told = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_MS / 1000)
            report = self.report()
            if report is None:
                continue
            try:
                await self._client.command(report, ANSWER_MS_MAX)
            except NoController as error:
                logger.debug("sizes of copies not told: %s", error)

    def report(self) -> ReportCopies | None:
        """None when nothing moves; else the next ones, in turns when there are many."""
        moving = [hosted for hosted in self._manager if self._counts(hosted)]
        if not moving:
            return None
        first = self._told % len(moving)
        turn = [*moving[first:], *moving[:first]][:COPIES_MAX]
        self._told = first + len(turn)
        return ReportCopies(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            copies=tuple(
                CopySize(topic_id=h.key.topic_id, index=h.key.index, size=h.log.size) for h in turn
            ),
        )

    def _counts(self, hosted: Hosted) -> bool:
        partition = hosted.replica.partition
        if not partition.adding or hosted.replica.failed:
            return False
        return partition.leader == self._broker_id or self._broker_id in partition.adding
