"""Tells the controller what it must know of this broker's logs.

How complete they are, for partitions that nobody leads, until somebody does; and which of them
the disk took out of service, until they are out of their ISRs.  A task of the data path: it looks
once a second, and whenever the image changes or a log fails.  What follows from it is the
controller's to say (the rules for leaderless partitions and for offline log directories): a broker
does not know whose answer counts, or whether it only feeds the estimate of what would be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from plimsoll_broker.controller_client import ControllerClient, NoController
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_core.ids import BrokerEpoch, BrokerId, LeaderEpoch
from plimsoll_core.messages import (
    FailedReplica,
    ReplicaLog,
    ReportFailedReplicas,
    ReportReplicaLogs,
)
from plimsoll_core.model import ClusterImage

logger = logging.getLogger("plimsoll.recovery")

PERIOD_MS = 1_000
ANSWER_MS_MAX = 10_000
LOGS_MAX = 1_000

Report = ReportFailedReplicas | ReportReplicaLogs


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
        manager.on_failure = self._changed.set

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        if old.partitions is not new.partitions:
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            for request in (*self._failed(), *self._complete()):
                await self._report(request)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_MS / 1000):
                    await self._changed.wait()

    def _failed(self) -> list[Report]:
        """What still counts on a log that is out of service."""
        manager = self._manager
        keys = [hosted.key for hosted in manager if hosted.replica.failed] + list(manager.broken)
        partitions = manager.image.partitions if manager.image is not None else {}
        found = [
            FailedReplica(topic_id=key.topic_id, index=key.index)
            for key in keys
            if key in partitions and self._broker_id in partitions[key].isr
        ]
        return [
            ReportFailedReplicas(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                replicas=tuple(found[first : first + LOGS_MAX]),
            )
            for first in range(0, len(found), LOGS_MAX)
        ]

    def _complete(self) -> list[Report]:
        found: list[ReplicaLog] = []
        for hosted in self._manager:
            replica = hosted.replica
            if replica.partition.leader is not None or replica.failed:
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
        return [
            ReportReplicaLogs(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                logs=tuple(found[first : first + LOGS_MAX]),
            )
            for first in range(0, len(found), LOGS_MAX)
        ]

    async def _report(self, request: Report) -> None:
        logger.info("telling the controller: %s", type(request).__name__)
        try:
            await self._client.command(request, ANSWER_MS_MAX)
        except NoController as error:
            logger.warning("%s not told: %s", type(request).__name__, error)
