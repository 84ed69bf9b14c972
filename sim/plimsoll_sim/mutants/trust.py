"""Mutants of guards of trust: records that are not on a disk yet, disks that were full, claims of
followers, and requests of clients and releases."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

BROKER = "broker_image/plimsoll_broker/"
CORE = "core/plimsoll_core/"
REPLICA = CORE + "replica/replica.py"

TRUST: tuple[Mutant, ...] = (
    Mutant(
        name="commits-what-is-not-flushed",
        rule="with flush.messages a leader commits what is on its disk (4.9)",
        scenarios=("S11e",),
        profile="flushed",
        edits=(
            Edit(
                REPLICA,
                "committable(leader, self.log.countable_end)",
                "committable(leader, self.log.log_end_offset)",
            ),
        ),
    ),
    Mutant(
        name="follows-before-its-flush",
        rule="with flush.messages a follower asks on when its disk has it all (4.9; both places)",
        scenarios=("S11e",),
        profile="flushed",
        edits=(
            Edit(
                BROKER + "replication/follower_session.py",
                "if hosted.log.countable_end < hosted.log.log_end_offset:",
                "if False:",
            ),
            Edit(
                BROKER + "replication/fetcher.py",
                "await self._manager.flusher.settle(appended)",
                "pass",
            ),
        ),
    ),
    Mutant(
        name="takes-what-follows-a-gap",
        rule="after an unclean stop what follows a gap between segments is dropped (4.9)",
        scenarios=("S39b",),
        profile="disks",
        edits=(
            Edit(
                BROKER + "storage/recovery.py",
                "follows = at == first or segments[at].base_offset == scan.end_offset",
                "follows = True",
            ),
        ),
    ),
    Mutant(
        name="takes-what-is-left-for-all-there-was",
        rule="a log that lost a file after a clean stop is out of service (4.9)",
        scenarios=("S38b",),
        profile="lost files",
        edits=(
            Edit(
                BROKER + "storage/damage.py",
                "recovery_point is not None and end < recovery_point",
                "False",
            ),
        ),
    ),
    Mutant(
        name="beginning-nobody-misses",
        rule="a log that begins later than it was noted to is no copy of anything (4.9)",
        scenarios=("S38c",),
        profile="lost files",
        edits=(
            Edit(
                BROKER + "storage/recovery.py",
                "lost = known.noted_start is not None and",
                "lost = False and known.noted_start is not None and",
            ),
        ),
    ),
    Mutant(
        name="lost-beginning-names-its-last-record",
        rule="a log that lost its beginning is elected after all that hold a record (4.9)",
        scenarios=("S38c",),
        profile="lost files",
        by_chance=False,  # all that may be complete must be killed, and the first of them lose it
        edits=(
            Edit(
                CORE + "replica/follower.py",
                "None if log.incomplete else log.epochs",
                "log.epochs",
            ),
        ),
    ),
    Mutant(
        name="retries-of-what-is-lost",
        rule="a log that lost its beginning knows producers by its batches alone (4.9)",
        scenarios=("S38c",),
        profile="lost files",
        by_chance=False,  # seed 1766372 found it, one run in three hundred
        edits=(
            Edit(
                BROKER + "storage/recovery.py",
                "if lost:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="first-segment-without-a-name",
        rule="the segment that a log begins with keeps its name in a power cut (4.9)",
        scenarios=("S39h",),
        profile="outages",
        by_chance=False,  # seed 1320004 found it, one run in ten thousand
        edits=(
            Edit(
                BROKER + "storage/durability.py",
                "return self._names_synced >= self._made.get(segment, 1)",
                "return True",
            ),
        ),
    ),
    Mutant(
        name="deletes-the-uncommitted",
        rule="DeleteRecords ends at the high watermark",
        scenarios=("S37g",),
        profile="beginnings",
        edits=(
            Edit(
                REPLICA,
                "return deletable_offset(offset, self.high_watermark)",
                "return deletable_offset(offset, self.log.log_end_offset)",
            ),
        ),
    ),
    Mutant(
        name="back-from-a-full-disk-too-soon",
        rule="a log that met a full disk is opened anew once it is out of the ISR (3.2)",
        scenarios=("S10c",),
        profile="room",
        edits=(
            Edit(
                BROKER + "replication/full_disks.py",
                "return manager.settings.broker_id not in manager.image.partitions[key].isr",
                "return True",
            ),
        ),
    ),
    Mutant(
        name="takes-no-descriptor-for-no-disk",
        rule="a log that found no descriptor comes back by itself (3.2)",
        scenarios=("S10d",),
        profile="descriptors",
        edits=(
            Edit(
                BROKER + "replication/full_disks.py",
                "return _is(error, StorageFault.FULL, StorageFault.DESCRIPTORS)",
                "return _is(error, StorageFault.FULL)",
            ),
        ),
    ),
    Mutant(
        name="elects-who-has-no-disk",
        rule="nobody is elected whose log is out of service (3.2)",
        scenarios=("S10b",),
        profile="room",
        by_chance=False,  # none of 60 runs: elections without end only cost time there
        edits=(
            Edit(
                CORE + "controller/kernel/decision.py",
                "return failed.get(broker_id) ==",
                "return False and failed.get(broker_id) ==",
            ),
        ),
    ),
    Mutant(
        name="any-epoch-that-is-higher",
        rule="a follower's epoch is the registered one, not a higher one (4.7)",
        scenarios=("S43",),
        profile="strangers",
        edits=(
            Edit(
                CORE + "replica/replica_context.py",
                "if registered is None or broker_epoch > registered.broker_epoch:",
                "if registered is None:",
            ),
        ),
    ),
    Mutant(
        name="followers-on-any-port",
        rule="followers are answered on the replication port alone (4.7)",
        scenarios=("S43",),
        profile="strangers",
        edits=(
            Edit(
                CORE + "cluster/listener_peers.py",
                "    if port is Port.EVERYBODY:\n        return True\n",
                "    return True\n",
            ),
        ),
    ),
    Mutant(
        name="believes-what-is-said-of-controllers",
        rule="that there is a newer controller only that one says (4.7)",
        scenarios=("S43",),
        profile="strangers",
        edits=(
            Edit(
                BROKER + "control/controller_client.py",
                "self._rumour.heard_of(epoch)",
                "self.highest_epoch = max(self.highest_epoch, epoch)",
            ),
        ),
    ),
    Mutant(
        name="finalises-what-nobody-pinned",
        rule="a metadata version that is pinned is not passed (3.15)",
        scenarios=("S44",),
        edits=(
            Edit(
                CORE + "controller/brokers/metadata_finalization.py",
                "target = found.wanted if pinned else min(found.wanted, found.finalizable)",
                "target = found.finalizable",
            ),
        ),
    ),
)
