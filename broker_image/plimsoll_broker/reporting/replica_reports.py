"""What this broker reports of its replicas to the controller.

`CopyReports`: tells the controller how many bytes this broker holds of partitions that move. A
leader reports how much there is to copy, a new replica how much it has. Users read it as progress;
no decision depends on it. It is one of the data path's tasks, every two seconds while anything
moves. More slowly, and in turns, a leader also reports its partitions' sizes and traffic, on
which plans rest, and the lag of each follower in records. Source:
crds/plimsoll.dev_reassignments.yaml, what a Reassignment shows.

`RecoveryReports`: tells the controller what it must know of this broker's logs. It reports how
complete the logs of leaderless partitions are, until they have a leader; and logs that the disk
took offline, until they are out of their ISRs. It is one of the data path's tasks: it looks once a
second, and whenever the image changes or a log fails. The controller decides what follows (the
rules for leaderless partitions and for offline log directories): a broker does not know whether its
answer counts or only feeds the estimate of what would be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from plimsoll_broker.control.controller_client import ControllerClient, NoController
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.ids import BrokerLifetime, LeaderEpoch
from plimsoll_core.messages.moves import CopySize, FollowerLag, ReportCopies
from plimsoll_core.messages.requests import (
    Done,
    FailedReplica,
    ReplicaLog,
    ReportFailedReplicas,
    ReportReplicaLogs,
)
from plimsoll_core.phrasing import counted
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.replica_reports")
COPIES_PERIOD_MS = 2_000
COPIES_ANSWER_MS_MAX = 5_000
COPIES_MAX = 1_000
"""The most copies in one report; further ones follow in the next reports."""
SIZES_PERIODS = 15
"""The number of reporting periods from one report of sizes to the next. The first one is sent as
soon as this broker leads a partition."""


class CopyReports:
    """Reports to the controller how many bytes this broker holds of partitions that are being
    copied, and at times the sizes and follower lags of the partitions it leads. `run` is the
    task."""

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
        """Send a report every two seconds if there is one, until cancelled."""
        while True:
            await asyncio.sleep(COPIES_PERIOD_MS / 1000)
            report = self.report()
            if report is None:
                continue
            try:
                await self._client.command(report, COPIES_ANSWER_MS_MAX)
            except NoController as error:
                logger.debug(
                    "the controller did not accept this broker's report of the sizes of moving "
                    "replicas; the broker reports them again in the next period: %s",
                    error,
                )

    def report(self) -> ReportCopies | None:
        """Return the next report, and advance to the partitions of the one after it. Return None if
        no partition is being copied and no sizes are due. It has at most COPIES_MAX copies and as
        many sizes of led partitions; the other ones follow in later reports."""
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
        """Return True if this broker leads the partition and its log is online."""
        return not hosted.replica.failed and hosted.replica.partition.leader == self._broker_id

    def _counts(self, hosted: Hosted) -> bool:
        """Return True if the partition is being copied and this broker leads it or receives a
        copy."""
        partition = hosted.replica.partition
        if not partition.adding or hosted.replica.failed:
            return False
        return partition.leader == self._broker_id or self._broker_id in partition.adding


def _in_turn(found: list[Hosted], told: int) -> tuple[list[Hosted], int]:
    """Return the next partitions to report, at most COPIES_MAX, and the `told` of the next call.
    `told`: the index in `found` at which this portion begins."""
    if not found:
        return [], 0
    first = told % len(found)
    turn = [*found[first:], *found[:first]][:COPIES_MAX]
    return turn, first + len(turn)


def _size(hosted: Hosted) -> CopySize:
    """Return the size of the partition's log here."""
    key = hosted.key
    return CopySize(topic_id=key.topic_id, index=key.index, size=hosted.log.size)


def _led(hosted: Hosted) -> CopySize:
    """Return the size of the partition's log, the lag of its followers and its traffic with
    clients."""
    return replace(
        _size(hosted),
        behind=tuple(_behind(hosted)),
        bytes_in=hosted.bytes_in,
        bytes_out=hosted.bytes_out,
    )


def _behind(hosted: Hosted) -> Iterator[FollowerLag]:
    """Yield the lag in records of each follower that lacks any, by broker id; None as the lag if
    the follower's log end is not known. Yield nothing if this broker does not lead the
    partition."""
    replica = hosted.replica
    if replica.leader is None:
        return
    end = replica.log.log_end_offset
    for broker_id, progress in sorted(replica.leader.followers.items()):
        if progress.log_end is None:
            yield FollowerLag(broker_id=broker_id, records=None)
        elif progress.log_end < end:
            yield FollowerLag(broker_id=broker_id, records=end - progress.log_end)


LOGS_PERIOD_MS = 1_000
REPEAT_MS = 5_000
"""How often all logs are reported again, in ms: a controller may have lost the reports, and does
not ask for them. Many partitions may lack a leader for long, so it is not done more often."""
LOGS_ANSWER_MS_MAX = 10_000
LOGS_MAX = 1_000

Report = ReportFailedReplicas | ReportReplicaLogs


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The logs that the controller has been told of. `at_ms`: the monotonic time of the last report
    of all logs; `epoch`: the controller epoch then. `logs`: the newest report of each log, by
    partition."""

    at_ms: int
    epoch: int
    logs: Mapping[PartitionKey, ReplicaLog]


NOTHING_TOLD = Told(at_ms=0, epoch=-1, logs={})


class RecoveryReports:
    """Reports to the controller the ends of logs of leaderless partitions, and the replicas that a
    disk took offline. `run` is the task; `update` takes new metadata images."""

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
        """Take a new metadata image. Wake the task if partitions or the controller have changed."""
        if old.partitions is not new.partitions or old.controller_epoch != new.controller_epoch:
            self._manager.report_due.set()

    async def run(self) -> None:
        """Send reports once a second, and at once if `report_due` is set, until cancelled."""
        while True:
            self._manager.report_due.clear()
            for failed in self._failed():
                await self._report(failed)
            await self._tell(self._complete())
            await set_within(self._manager.report_due, LOGS_PERIOD_MS / 1000)

    def _failed(self) -> list[Report]:
        """Return the reports of this broker's replicas that are offline and still in an ISR, or
        must leave an ISR or an ELR before their logs are discarded; an empty list if there is
        none."""
        manager = self._manager
        keys = [hosted.key for hosted in manager if hosted.replica.failed] + list(manager.broken)
        partitions = manager.image.partitions if manager.image is not None else {}
        found = [
            FailedReplica(topic_id=key.topic_id, index=key.index)
            for key in keys
            if key in partitions and self._broker_id in partitions[key].isr
        ]
        found += [
            FailedReplica(topic_id=hosted.key.topic_id, index=hosted.key.index, lost=True)
            for hosted in manager
            if hosted.replica.leaving and hosted.replica.electable
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
        """Report the logs in `found` (by partition) that have changed since their last report; all
        of them to a new controller, and every REPEAT_MS. If the controller does not accept a
        report, the next call reports all."""
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
        """Return the leader epoch and log end of each of this broker's replicas of
        leaderless partitions."""
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
        """Send a report. Return True if the controller accepted it, False if it refused or did not
        answer."""
        what = _shown(request)
        logger.info("this broker reports to the controller: %s", what)
        try:
            answer = await self._client.command(request, LOGS_ANSWER_MS_MAX)
        except NoController as error:
            logger.warning(
                "the controller did not answer this broker's report of %s; partitions of these "
                "replicas may have no leader until the broker has sent the report again: %s",
                *(what, error),
            )
            return False
        return isinstance(answer, Done)


def _shown(request: Report) -> str:
    """Return what the report is about, for log lines."""
    if isinstance(request, ReportFailedReplicas):
        count = counted(len(request.replicas), "replica")
        return f"{count} offline or to be copied anew on this broker"
    return f"the log ends of {counted(len(request.logs), 'replica')} without a leader"
