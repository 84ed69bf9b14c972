"""Guards of where logs begin, of what a power cut may take, and of the clock that decides."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

BROKER = "broker_image/plimsoll_broker/"
FOLLOWER = "core/plimsoll_core/replica/follower.py"
DIVERGENCE = "core/plimsoll_core/replica/fetch_checks.py"
TRUNCATION = "core/plimsoll_core/replica/follower.py"
EPOCHS = "core/plimsoll_core/replica/leader_epochs.py"
CHECKPOINTS = BROKER + "storage/checkpoint_files.py"
RETENTION = BROKER + "storage/retention.py"
SEGMENT_REMOVAL = BROKER + "replication/segment_removal.py"
ALL, OTHERS = "in self._files:\n", "in (self._recovery_points, self._high_watermarks):\n"
FIRST = "first = offset"
NOWHERE = "if last_fetched_epoch is None and offset > log.log_start_offset and not complete:"
LOWERED = "            offsets.lower("
LOWERED_TOGETHER = "            for partition, offset in offsets"

BEGINNINGS: tuple[Mutant, ...] = (
    Mutant(
        name="start-outlives-the-cut",
        rule="no checkpointed log start outlives the records below it (4.8)",
        scenarios=("S37c",),
        profile="beginnings",
        by_chance=False,  # none of 300 runs; random lives of one log do (make storage)
        edits=(
            Edit(CHECKPOINTS, f"{ALL}{LOWERED}", f"{OTHERS}{LOWERED}"),
            Edit(CHECKPOINTS, f"{ALL}{LOWERED_TOGETHER}", f"{OTHERS}{LOWERED_TOGETHER}"),
        ),
    ),
    Mutant(
        name="cut-below-its-own-start",
        rule="who would be cut below its own start begins again at the leader's (4.8)",
        scenarios=("S37b",),
        profile="beginnings",
        edits=(
            Edit(
                TRUNCATION,
                "return None if offset < (log.log_start_offset if least is None else least)",
                "return None if False",
            ),
        ),
    ),
    Mutant(
        name="answers-for-what-is-deleted",
        rule="whose last epoch ended before all that its leader has begins again (4.7)",
        scenarios=("S37i", "S37j", "S37k"),
        profile="beginnings",
        by_chance=False,  # none of 40 runs; seed 1718111 found S37i's, one run in thousands
        edits=(Edit(DIVERGENCE, "is not None and epoch < oldest", "is not None and False"),),
    ),
    Mutant(
        name="an-empty-log-begins-anywhere",
        rule="who holds no record begins where its leader does (4.7, 4.8)",
        scenarios=("S37m",),
        profile="beginnings",
        by_chance=False,  # it takes all records of a log that began later than its leader's
        edits=(Edit(DIVERGENCE, NOWHERE, "if False:"),),
    ),
    Mutant(
        name="empties-who-may-be-elected",
        rule="who holds no record but may be elected stays where it is (4.7)",
        scenarios=("S37n",),
        profile="turns",
        edits=(Edit(DIVERGENCE, "offset > log.log_start_offset and not complete:", "offset > 0:"),),
    ),
    Mutant(
        name="begins-only-with-a-batch",
        rule="an empty log takes the batch that holds its start",
        scenarios=("S37d",),
        profile="beginnings",
        edits=(Edit(FOLLOWER, "if not count and log.log_start_offset == expected:", "if False:"),),
    ),
    Mutant(
        name="emptied-log-forgets-its-term",
        rule="a log that let go of everything is as complete as it was (4.9)",
        scenarios=("S37h",),
        profile="disks",
        by_chance=False,  # seed 1355942 found it, one run in ten thousand
        edits=(Edit(EPOCHS, "first = offset - 1 if offset == log_end_offset else offset", FIRST),),
    ),
    Mutant(
        name="follows-no-start",
        rule="a log that begins again begins where its leader's does, not at its end (both places)",
        scenarios=("S37",),
        profile="beginnings",
        edits=(
            Edit(
                TRUNCATION,
                "leader_start > log.log_end_offset:\n        return begin_again(leader_start)",
                "leader_start > log.log_end_offset:\n        return begin_again(leader_end)",
            ),
            Edit(DIVERGENCE, NOWHERE, "if False:"),
        ),
    ),
    Mutant(
        name="drops-one-too-many",
        rule="retention by size keeps at least that much",
        scenarios=("S37",),
        profile="beginnings",
        edits=(
            Edit(
                RETENTION,
                "size - segment.size >= config.retention_bytes",
                "size >= config.retention_bytes",
            ),
        ),
    ),
    Mutant(
        name="too-old-too-early",
        rule="retention by age asks for the newest record of a segment",
        scenarios=("S37e",),
        profile="beginnings",
        edits=(
            Edit(
                RETENTION,
                "    newest = segment.max_timestamp\n",
                "    newest = segment.max_timestamp - 3_000\n",
            ),
        ),
    ),
    Mutant(
        name="believes-any-clock",
        rule="a wall clock that stepped deletes nothing",
        scenarios=("S37e",),
        profile="beginnings",
        edits=(
            Edit(
                BROKER + "replication/wall_clock.py",
                "believed = abs(stepped_ms) <= STEP_MS_MAX",
                "believed = True",
            ),
        ),
    ),
    Mutant(
        name="names-are-not-synced",
        rule="a flush after a roll syncs the directory, too",
        scenarios=("S39e",),
        profile="flushed",
        edits=(
            Edit(
                BROKER + "storage/durability.py",
                "names=None if self._names_synced == self.renames else self._directory,",
                "names=None,",
            ),
        ),
    ),
    Mutant(
        name="cuts-come-undone",
        rule="what was cut stays cut (4.8; both places that see to it)",
        scenarios=("S39f",),
        profile="flushed",
        by_chance=False,  # none of 60 runs; random lives of one log do (make storage)
        edits=(
            Edit(
                BROKER + "storage/durability.py",
                "self.unsettled = (*(self.unsettled or ()), *files)",
                "self.unsettled = ()",
            ),
            Edit(BROKER + "storage/recovery.py", "    _uncover(segments[: first + 1])\n", ""),
        ),
    ),
    Mutant(
        name="removes-before-the-start-is-saved",
        rule="segments go when the start behind them is on the disk (4.9)",
        scenarios=("S39g",),
        profile="flushed",
        by_chance=False,  # none of 150 runs; random lives of one log do (make storage)
        edits=(
            Edit(SEGMENT_REMOVAL, "            await in_thread(saves)\n", "            pass\n"),
            Edit(
                SEGMENT_REMOVAL,
                "saved_start = manager.store.saved_log_start(hosted.log)",
                "saved_start = hosted.log.log_start_offset",
            ),
        ),
    ),
    Mutant(
        name="lets-go-of-the-uncommitted",
        rule="retention lets go of nothing above the high watermark",
        scenarios=("S37f",),
        profile="beginnings",
        edits=(Edit(RETENTION, "if end > high_watermark or not segment", "if not segment"),),
    ),
)
