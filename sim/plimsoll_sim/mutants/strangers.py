"""Guards where no other mutant is: of deletions that were answered, and of what cleaners count on.

Each takes several faults in one order, which hardly ever come together by chance: scenarios notice.
"""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

CORE = "core/plimsoll_core/"
BROKER = "broker_image/plimsoll_broker/"
CLEANER = BROKER + "replication/log_cleaner.py"
DELETIONS = BROKER + "handlers/delete_records.py"
CHECKPOINTS = BROKER + "storage/checkpoint_files.py"
MANAGER = BROKER + "replication/replica_manager.py"


def _seen_by(scenarios: tuple[str, ...], name: str, rule: str, *edits: Edit) -> Mutant:
    return Mutant(
        name=name,
        rule=rule,
        scenarios=scenarios,
        profile="cleaning and deleting",
        by_chance=False,
        edits=edits,
    )


STRANGERS: tuple[Mutant, ...] = (
    _seen_by(
        ("S37o",),
        "deletion-waits-for-the-isr-alone",
        "a deletion is answered when nobody has it who may be elected cleanly (5.3)",
        Edit(
            CORE + "replica/commit.py",
            "if leader.may_be_next(broker_id)",
            "if broker_id in leader.isr.maximal",
        ),
    ),
    _seen_by(
        ("S37p",),
        "joins-with-what-was-deleted",
        "who joins has heard where the log begins (4.5)",
        Edit(
            CORE + "replica/isr_membership.py",
            "if leader.followers[follower].log_start < log_start:",
            "if leader.followers[follower].log_start < 0:",
        ),
    ),
    _seen_by(
        ("S37q",),
        "answers-a-deletion-before-it-is-saved",
        "a deletion is answered once the leader's start is on its disk (5.3)",
        Edit(DELETIONS, "        await self._save(deletions)\n", ""),
    ),
    _seen_by(
        ("S37o", "S37g"),
        "answers-a-deletion-at-once",
        "a deletion is answered when others have taken it over (5.3)",
        Edit(
            CORE + "replica/replica.py",
            "self.waiters.for_start.reached(self.low_watermark, Code.NONE)",
            "self.waiters.for_start.reached(self.log.log_start_offset, Code.NONE)",
        ),
    ),
    _seen_by(
        ("S37o",),
        "deletion-waits-for-all-replicas",
        "a deletion waits for nobody who may only be elected uncleanly (5.3)",
        Edit(
            CORE + "replica/commit.py",
            "                if leader.may_be_next(broker_id)\n",
            "",
        ),
    ),
    _seen_by(
        ("K10",),
        "cleaner-counts-on-what-is-not-on-the-disk",
        "what supersedes a record is on the disk before it goes (10.1)",
        Edit(
            CLEANER,
            "if log.recovery_point < log.segments[-1].base_offset:",
            "if log.recovery_point < 0:",
        ),
        Edit(CLEANER, "self._plan(hosted, log.recovery_point)", "self._plan(hosted, 2**62)"),
    ),
    _seen_by(
        ("K11",),
        "crashed-log-believes-its-checkpoint",
        "after a crash all of a compacted log may be committed (10.4)",
        Edit(
            MANAGER,
            "known = 0 if self.store.clean_epoch is not None else log.log_end_offset",
            "known = 0",
        ),
    ),
    _seen_by(
        ("K08", "K09"),
        "lost-superseding-records-are-not-missed",
        "who lost what superseded the records that it took is no copy (10.4)",
        Edit(CHECKPOINTS, "if superseding_end <= log.log_end_offset:", "if superseding_end >= 0:"),
    ),
    _seen_by(
        ("K08",),
        "asks-on-without-its-keys",
        "who lacks the last records of keys begins anew before it asks (10.4)",
        Edit(
            BROKER + "replication/follower_session.py",
            "if hosted.log.incomplete:",
            "if hosted.log.beginning_lost:",
        ),
        Edit(
            CORE + "replica/follower.py",
            "last = None if log.incomplete else",
            "last = None if log.log_end_offset < 0 else",
        ),
    ),
    _seen_by(
        ("S37p",),
        "followers-hear-of-no-deletion",
        "a deletion wakes the fetches that wait (4.7)",
        Edit(DELETIONS, "        hosted.replica.start_moved()\n", ""),
    ),
    _seen_by(
        ("K09",),
        "who-lacks-keys-shares-its-log",
        "whoever follows a leader that lacks keys copies it anew (10.4)",
        Edit(
            CORE + "replica/replica.py",
            "            if self.log.superseding_lost:\n",
            "            if self.log.log_end_offset < 0:\n",
        ),
    ),
    _seen_by(
        ("K09",),
        "copies-anew-over-and-over",
        "who began to copy a log that lacks keys goes on (10.4)",
        Edit(
            CORE + "replica/leader.py",
            "            self.copied_anew.add(broker_id)\n",
            "            pass\n",
        ),
    ),
    _seen_by(
        ("S37d",),
        "follower-keeps-what-its-leader-deleted",
        "a follower begins where its leader does (4.8)",
        Edit(
            BROKER + "replication/fetcher.py",
            "        driver.advance_log_start(hosted, reply.log_start)\n",
            "",
        ),
    ),
    _seen_by(
        ("S37g",),
        "deletion-begins-nothing",
        "the leader's log begins where a client asked for (5.3)",
        Edit(DELETIONS, "        manager.driver.advance_log_start(hosted, required)\n", ""),
    ),
    _seen_by(
        ("K07",),
        "reopened-log-forgets-what-is-committed",
        "a log that is opened again keeps what its replica knew (10.4)",
        Edit(
            MANAGER,
            "known = old.replica.compacted_copy.superseded_below",
            "known = log.log_end_offset",
        ),
    ),
    _seen_by(
        ("K01", "K04"),
        "round-takes-nothing",
        "a round that changed a segment puts it in the log (10.3)",
        Edit(CLEANER, "if made.changed and not await", "if not made.changed and not await"),
    ),
)
