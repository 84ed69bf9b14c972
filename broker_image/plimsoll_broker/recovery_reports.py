"""Tells the controller how complete the logs are of partitions that nobody may lead.

A task of the data path.  It looks at the image once a second and whenever it changes, and reports
until somebody leads.  Who leads is the controller's to say (balanced recovery).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from plimsoll_broker.controller_client import ControllerClient, NoController
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_core.ids import BrokerEpoch, BrokerId, LeaderEpoch
from plimsoll_core.messages import ReplicaLog, ReportReplicaLogs
from plimsoll_core.model import ClusterImage

logger = logging.getLogger("plimsoll.recovery")

PERIOD_MS = 1_000
ANSWER_MS_MAX = 10_000
LOGS_MAX = 1_000


class RecoveryReports:
    """`run` is the task; `update` hears of new images."""

    def __init__(
        self,
        manager: ReplicaManager,
        client: ControllerClient,
        broker: tuple[BrokerId, BrokerEpoch],
    ) -> None:
        self._manager = manager
        self._client = client
        self._broker_id, self._broker_epoch = broker
        self._changed = asyncio.Event()

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        if old.partitions is not new.partitions:
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            wanted = self._wanted()
            for first in range(0, len(wanted), LOGS_MAX):
                await self._report(wanted[first : first + LOGS_MAX])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_MS / 1000):
                    await self._changed.wait()

    def _wanted(self) -> list[ReplicaLog]:
        found: list[ReplicaLog] = []
        for hosted in self._manager:
            replica = hosted.replica
            partition = replica.partition
            wanted = partition.needs_recovery and self._broker_id in partition.last_known_elr
            if not wanted or replica.failed:
                continue
            position = replica.position()
            found.append(
                ReplicaLog(
                    topic_id=hosted.key.topic_id,
                    index=hosted.key.index,
                    leader_epoch=LeaderEpoch(position.leader_epoch),
                    last_written_epoch=position.last_fetched_epoch,
                    log_end_offset=position.fetch_offset,
                )
            )
        return found

    async def _report(self, logs: list[ReplicaLog]) -> None:
        logger.info("reporting %d logs for recovery", len(logs))
        request = ReportReplicaLogs(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch, logs=tuple(logs)
        )
        try:
            await self._client.command(request, ANSWER_MS_MAX)
        except NoController as error:
            logger.warning("%d logs not reported: %s", len(logs), error)
