"""Guards of compaction: what is cleaned, what stays of it, and what its replicas make of holes."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

CORE = "core/plimsoll_core/"
BROKER = "broker_image/plimsoll_broker/"
RETAIN = CORE + "compaction/retain.py"
ROUND = BROKER + "storage/cleaner/round.py"
CLEANER = BROKER + "replication/log_cleaner.py"
NEWEST = BROKER + "storage/cleaner/newest_keys.py"
MARKED = "            live[number >> 3] |= 1 <<"
KEPT = "return self.ends_segment or self.begins_epoch or self.of_producer"

CLEANING: tuple[Mutant, ...] = (
    Mutant(
        name="cleans-above-the-high-watermark",
        rule="nothing that is not committed decides what is superseded (10.1)",
        scenarios=("K03",),
        profile="cleaning",
        edits=(Edit(CLEANER, "min(hosted.replica.high_watermark, flushed_end)", "flushed_end"),),
    ),
    Mutant(
        name="drops-the-last-record-of-a-key",
        rule="the last record of each key stays (10.2)",
        scenarios=("K01",),
        profile="cleaning",
        edits=(Edit(NEWEST, MARKED, MARKED.replace("1", "0")),),
    ),
    Mutant(
        name="drops-the-first-batch-of-a-term",
        rule="the first batch of each leader epoch stays (10.2)",
        scenarios=("K01",),
        profile="cleaning",
        edits=(Edit(RETAIN, KEPT, "return self.ends_segment or self.of_producer"),),
    ),
    Mutant(
        name="forgets-producers",
        rule="the batches by which retries are recognised stay (10.2)",
        scenarios=("K01",),
        profile="cleaning",
        edits=(Edit(RETAIN, KEPT, "return self.ends_segment or self.begins_epoch"),),
    ),
    Mutant(
        name="drops-the-end-of-a-segment",
        rule="a segment ends where the next begins (10.0, 10.2)",
        scenarios=("K01",),
        profile="cleaning",
        edits=(Edit(RETAIN, KEPT, "return self.begins_epoch or self.of_producer"),),
    ),
    Mutant(
        name="follows-over-no-hole",
        rule="a follower of a compacted topic takes what begins behind its end (10.0)",
        scenarios=("K01",),
        profile="cleaning",
        edits=(
            Edit(
                CORE + "replica/follower.py",
                "(log.holes and batch.base_offset > expected)",
                "False",
            ),
        ),
    ),
    Mutant(
        name="cut-below-what-superseded",
        rule="who is cut below what superseded a record of it copies anew (10.4)",
        scenarios=("K02",),
        profile="cleaning",
        by_chance=False,  # the cut has to hit a key that nobody writes any more
        edits=(
            Edit(
                CORE + "replica/follower.py",
                "max(start, self.superseded_below) if self._log.holes else start",
                "start",
            ),
        ),
    ),
    Mutant(
        name="tombstones-go-at-once",
        rule="a tombstone stays for as long as somebody may be behind (10.2)",
        scenarios=("K04",),
        profile="cleaning",
        edits=(Edit(RETAIN, "return now_ms >= horizon.at_ms", "return True"),),
    ),
    Mutant(
        name="knows-keys-by-their-beginning",
        rule="two keys that begin alike are two keys (10.1)",
        scenarios=("C05",),
        profile="groups",
        edits=(
            Edit(
                ROUND.replace("round.py", "newest_keys.py"),
                "            return found.keys\n",
                "            return [key and key[:6] for key in found.keys]\n",
            ),
        ),
    ),
    Mutant(
        name="moves-times-with-the-horizon",
        rule="a record's time stays when a delete horizon takes the base's place (10.2)",
        scenarios=("C05",),
        profile="groups",
        edits=(
            Edit(
                CORE.replace("plimsoll_core", "plimsoll_wire") + "keyed_records.py",
                "shift, base = base - horizon_ms, horizon_ms",
                "base = horizon_ms",
            ),
        ),
    ),
    Mutant(
        name="old-segments-stay-beside-the-new-one",
        rule="a start removes what a cleaned segment replaces (10.3)",
        scenarios=("K05",),
        profile="cleaning",
        by_chance=False,  # what does not fit is cut off, and copied from the leader again
        edits=(
            Edit(
                CORE + "compaction/swap.py",
                "        if base_offset < int(other) < end_offset:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        name="keeps-batches-that-may-be-cut",
        rule="a producer's last batches below the round's end stay, not the log's last (10.2)",
        scenarios=("K06",),
        profile="cleaning",
        by_chance=False,  # of a producer more than five batches have to wait for their commit
        edits=(
            Edit(
                ROUND,
                "        known = ProducerSnapshots(self._disk, self._directory)"
                ".load(self._job.end)\n",
                "        files = ProducerSnapshots(self._disk, self._directory)\n"
                "        known = files.load(files.offsets()[-1])\n",
            ),
        ),
    ),
    Mutant(
        name="reopens-as-after-a-crash",
        rule="a log that had a full disk cuts only what was never committed (10.4)",
        scenarios=("K07",),
        profile="cleaning",
        by_chance=False,  # one run in thousands has a leader that cleaned, a full disk and a tail
        edits=(
            Edit(
                "broker_image/plimsoll_broker/replication/replica_manager.py",
                "known = old.replica.compacted_copy.superseded_below",
                "known = log.log_end_offset",
            ),
        ),
    ),
)
