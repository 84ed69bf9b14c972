"""Guards of what clients and moves wait for, and are told, when brokers have died: without most of
them only time is lost, and no random run notices."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

CLUSTER = "core/plimsoll_core/cluster/"
MOVES = "core/plimsoll_core/controller/kernel/partition_change.py"

FAILOVER: tuple[Mutant, ...] = (
    Mutant(
        name="a-move-waits-for-who-is-dead",
        rule="a dead replica that stays delays no move that keeps its margin (3.0)",
        scenarios=("S33b",),
        edits=(
            Edit(
                MOVES,
                "    had = sum(r in p.isr for r in p.settled)\n",
                "    return False\n    had = sum(r in p.isr for r in p.settled)\n",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="a-move-ends-without-its-margin",
        rule="the ISR that a move leaves has min ISR and as many as it had (3.0)",
        scenarios=("S33b",),
        edits=(
            Edit(
                MOVES,
                "    return len(isr) >= min(had, len(p.target))"
                " and present >= min(p.min_isr, len(p.target))\n",
                "    return present >= 0 and had >= 0\n",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="holds-back-who-is-waited-for",
        rule="a broker that keeps falling out is taken back where a partition needs it (3.2)",
        scenarios=("S48",),
        edits=(
            Edit(
                "core/plimsoll_core/controller/brokers/heartbeat.py",
                "not is_held_back(turn, broker.id) or return_helps(turn, broker.id)",
                "not is_held_back(turn, broker.id)",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="takes-back-at-once-who-keeps-falling-out",
        rule="a broker that keeps falling out stays fenced for longer each time (3.2)",
        scenarios=("S48",),
        edits=(
            Edit(
                "core/plimsoll_core/controller/kernel/held_back_brokers.py",
                "min(1_000 << len(recent), settings.flap_wait_ms_max)",
                "0",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="lets-in-who-keeps-falling-out",
        rule="an ISR that has enough members admits no broker that is held back (3.2)",
        scenarios=("S48b",),
        edits=(
            Edit(
                "core/plimsoll_core/controller/partitions/alter_partition.py",
                "if not turn.soft.flaps or len(partition.isr) <",
                "if turn or len(partition.isr) <",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="begins-with-who-keeps-falling-out",
        rule="a new partition begins without a broker that is held back, if it can (3.2)",
        scenarios=("S48b",),
        edits=(
            Edit(
                "core/plimsoll_core/controller/topics/topic_creation.py",
                "return steady if len(steady) >= min(min_isr, len(row)) else present",
                "return present if steady else present",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="takes-back-who-reaches-no-min-isr",
        rule="a return helps where the ISR with it reaches its minimum (3.2)",
        scenarios=("S48c",),
        edits=(
            Edit(
                "core/plimsoll_core/controller/brokers/unfencing_wait.py",
                "    return len(able) >= p.effective_min_isr\n",
                "    return bool(able)\n",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="takes-back-who-may-not-lead",
        rule="a return helps a leaderless partition that the broker may lead (3.2)",
        scenarios=("S48c",),
        edits=(
            Edit(
                "core/plimsoll_core/controller/brokers/unfencing_wait.py",
                "        return _may_lead(turn, p, broker_id)\n",
                "        return True or _may_lead(turn, p, broker_id)\n",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="lists-no-broker-fenced-a-moment-ago",
        rule="Metadata that names the leaders after a broker's death still lists it (5.6)",
        scenarios=("S45",),
        edits=(
            Edit(
                CLUSTER + "recent_fences.py",
                "                self._until_ms[broker_id] = now_ms + LISTED_MS\n",
                "                pass\n",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="lists-a-broker-that-stopped",
        rule="Metadata lists no broker that stopped and led nothing when it was fenced (5.6)",
        scenarios=("S46",),
        edits=(
            Edit(
                CLUSTER + "recent_fences.py",
                "not before.fenced and _is_missed(old, before):",
                "not before.fenced:",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="lists-nobody",
        rule="Metadata lists the brokers that are registered where none is unfenced (5.6)",
        scenarios=("S47",),
        edits=(
            Edit(
                "broker_image/plimsoll_broker/handlers/metadata.py",
                "in told or opened",
                "in told",
            ),
        ),
        by_chance=False,
    ),
    Mutant(
        name="names-a-leader-lost-a-moment-ago",
        rule="a follower that has just lost a leader does not name it before it must (5.6)",
        scenarios=("S45",),
        edits=(
            Edit(
                CLUSTER + "awaited_fences.py",
                "if ms < AWAITED_MS)",
                "if False)",
            ),
        ),
        by_chance=False,
    ),
)
