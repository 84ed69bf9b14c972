"""RecoveryReports: tells the controller what it must know of this broker's logs.

It reports how complete the logs of leaderless partitions are, until they have a leader; and logs
that the disk took offline, until they are out of their ISRs. It is one of the data path's tasks: it
looks once a second, and whenever the image changes or a log fails. The controller decides what
follows (the rules for leaderless partitions and for offline log directories): a broker does not
know whether its answer counts or only feeds the estimate of what would be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_broker.control.controller_client import ControllerClient, NoController
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.ids import BrokerLifetime, LeaderEpoch
from plimsoll_core.messages.requests import (
    Done,
    FailedReplica,
    ReplicaLog,
    ReportFailedReplicas,
    ReportReplicaLogs,
)
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.recovery")

PERIOD_MS = 1_000
REPEAT_MS = 5_000
"""What the controller was told before is told again: it may have forgotten, and does not ask.  Many
partitions may wait for long, so not more often than this."""
ANSWER_MS_MAX = 10_000
LOGS_MAX = 1_000

Report = ReportFailedReplicas | ReportReplicaLogs


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the controller of this epoch heard of these logs; `at_ms`: all of them the last time."""

    at_ms: int
    epoch: int
    logs: Mapping[PartitionKey, ReplicaLog]


NOTHING_TOLD = Told(at_ms=0, epoch=-1, logs={})


class RecoveryReports:
    """`run` is the task; `update` hears of new images."""

    def __init__(
        self,
        manager: ReplicaManager,
        client: ControllerClient,
        broker: BrokerLifetime,
    ) -> None:
        self._manager = manager
        self._client = client
        self._broker_id, self._broker_epoch = broker
        self._told = NOTHING_TOLD

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        if old.partitions is not new.partitions or old.controller_epoch != new.controller_epoch:
            self._manager.report_due.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._manager.report_due.clear()
            for failed in self._failed():
                await self._report(failed)
            await self._tell(self._complete())
            await set_within(self._manager.report_due, PERIOD_MS / 1000)

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

    async def _tell(self, found: dict[PartitionKey, ReplicaLog]) -> None:
        """What is new; everything to another controller, and once in a while."""
        now_ms, image, told = self._manager.now_ms(), self._manager.image, self._told
        epoch = image.controller_epoch if image is not None else -1
        again = told.epoch != epoch or now_ms - told.at_ms >= REPEAT_MS
        wanted = [log for key, log in found.items() if again or told.logs.get(key) != log]
        self._told = Told(at_ms=now_ms if again else told.at_ms, epoch=epoch, logs=found)
        for first in range(0, len(wanted), LOGS_MAX):
            request = ReportReplicaLogs(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                logs=tuple(wanted[first : first + LOGS_MAX]),
            )
            if not await self._report(request):
                self._told = NOTHING_TOLD

    def _complete(self) -> dict[PartitionKey, ReplicaLog]:
        found: dict[PartitionKey, ReplicaLog] = {}
        for hosted in self._manager:
            replica = hosted.replica
            if replica.partition.leader is not None or replica.failed:
                continue
            position = replica.position()
            found[hosted.key] = ReplicaLog(
                topic_id=hosted.key.topic_id,
                index=hosted.key.index,
                leader_epoch=LeaderEpoch(position.leader_epoch),
                last_written_epoch=position.last_fetched_epoch,
                log_end_offset=position.fetch_offset,
            )
        return found

    async def _report(self, request: Report) -> bool:
        """Whether it was heard."""
        logger.info("telling the controller: %s", type(request).__name__)
        try:
            answer = await self._client.command(request, ANSWER_MS_MAX)
        except NoController as error:
            logger.warning("%s not reported: %s", type(request).__name__, error)
            return False
        return isinstance(answer, Done)
