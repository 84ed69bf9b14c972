"""Runs that are about something: faults that need each other, more often together than by chance.

Half of all runs have a theme, drawn from the seed.  `options` draws the rest.
"""

from __future__ import annotations

from plimsoll_sim.disk_themes import DISKS
from plimsoll_sim.theme import ACKED, CLOSE, STORY, THREE, Theme

THEMES: dict[str, Theme] = {
    # Leaders change hands while followers lag, join and leave.
    "hand-over": Theme(
        faults={
            "cut brokers": 6,
            "kill broker": 6,
            "stop broker": 6,
            "slow link": 3,
            "stall broker": 2,
            "prefer leaders": 2,
            "back and forth": 5,
            "unlucky heir": 5,
        },
        choices={
            **CLOSE,
            **THREE,
            "at_once": (2, 3),
            "heal_ms": (2_000,),
            "nervous": (0.3, 0.5),
            "latency_us": ((1_000, 40_000), (5_000, 200_000)),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
    # Somebody hears of everything too late, or not at all for a while.
    "late news": Theme(
        faults={
            "rebirth": 8,
            "stall broker": 3,
            "stall metadata": 5,
            "cut broker from controllers": 3,
            "cut brokers": 3,
            "kill broker": 3,
            "prefer leaders": 2,
            "back and forth": 3,
            "change min isr": 3,
        },
        choices={
            **CLOSE,
            **THREE,
            "at_once": (2, 3),
            "heal_ms": (2_000,),
            "flap_wait_ms_max": (1_000,),
            "flush_messages": (None,),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
    # What brokers remember, or said, in earlier lives.
    "other lives": Theme(
        faults={
            "late letters": 6,
            "quiet stop": 4,
            "old marker": 4,
            "rebirth": 2,
            "kill broker": 2,
            "cut brokers": 1,
        },
        choices={
            **STORY,
            **THREE,
            "at_once": (1, 2),
            "flap_wait_ms_max": (1_000,),
            "flush_messages": (None,),
            "lag_time_max_ms": (1_000, 5_000),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
    # A proposal is on its way for so long that something else comes first.
    "overtaken": Theme(
        faults={"overtaken": 8, "cut brokers": 1, "kill broker": 1},
        choices={
            **STORY,
            **THREE,
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((1, 50), (10, 500)),
            "flush_messages": (None,),
            "producers": ACKED,
        },
    ),
    # Everybody is gone, and somebody comes back with less than was there.
    "outages": Theme(
        faults={"slow to tell": 6, "old marker": 3, "cut power of broker": 1, "kill broker": 1},
        choices={
            **STORY,
            "brokers": (3,),
            "replication_factor": (2, 3),
            "min_isr": (2,),
            "flap_wait_ms_max": (1_000,),
            "flush_messages": (None,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
    # Moves that are given up half-way.
    "cancels": Theme(
        faults={"hasty cancel": 6, "kill broker": 1, "start reassignment": 1, "move replicas": 1},
        choices={
            **STORY,
            "brokers": (4, 5),
            "replication_factor": (2,),
            "min_isr": (2,),
            "flap_wait_ms_max": (1_000,),
            "producers": ACKED,
        },
    ),
    # Two replicas lead in turn, and each writes what the other has not got.
    "two terms": Theme(
        faults={"two terms": 6, "cut brokers": 1, "kill broker": 1, "slow link": 1},
        choices={
            **STORY,
            "replication_factor": (2,),
            "min_isr": (2,),
            "at_once": (1, 2),
            "flap_wait_ms_max": (1_000,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": (((1, False), (1, False)), ((1, False), (-1, True))),
        },
    ),
    # Leadership comes and goes among replicas that are all well.
    "turns": Theme(
        faults={"late reply": 5, "back and forth": 5, "prefer leaders": 1},
        choices={
            **STORY,
            "brokers": (3,),
            "replication_factor": (3,),
            "min_isr": (1, 2),
            "partitions": (3,),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (5_000, 30_000),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
    # Leadership comes back to where somebody still waits for a record.
    "waits": Theme(
        faults={"waits through": 6, "back and forth": 2, "cut client": 4, "cut brokers": 3},
        choices={
            **STORY,
            "brokers": (3,),
            "replication_factor": (3,),
            "min_isr": (1, 2),
            "partitions": (1,),
            "at_once": (1, 2),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (30_000,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": (((-1, True), (1, False), (-1, False)),),
        },
    ),
    # Leaders die right after they went on without somebody.
    "heirs": Theme(
        faults={"unlucky heir": 6, "kill broker": 1, "cut brokers": 1},
        choices={
            **STORY,
            "brokers": (4, 5),
            "replication_factor": (4,),
            "min_isr": (2,),
            "latency_us": ((5_000, 200_000),),
            "heal_ms": (500,),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((1, 50), (10, 500)),
            "consumers": (2,),
            "producers": ACKED,
        },
    ),
    # Controllers fight for their log on an API server in bad shape.
    "log": Theme(
        faults={
            "api flaky": 5,
            "api down": 2,
            "api hung": 2,
            "operator loses api": 4,
            "kill operator": 5,
            "pause operator": 5,
            "stop operator": 2,
            "restore etcd": 1,
            "kill broker": 5,
            "change min isr": 3,
            "prefer leaders": 2,
        },
        choices={
            **CLOSE,
            "operators": (2,),
            "slots": (16,),
            "slice_partitions_max": (1, 2, 1_000),
            "partitions": (2, 3),
        },
    ),
    # Replicas move, topics change, and the rest goes on.
    "moves": Theme(
        faults={
            "start reassignment": 6,
            "end reassignment": 4,
            "change replication factor": 2,
            "move replicas": 2,
            "cancel move": 2,
            "prefer leaders": 3,
            "kill broker": 4,
            "cut brokers": 3,
            "change min isr": 3,
            "add partitions": 1,
            "recreate topic": 1,
            "stall connection": 3,
            "kill operator": 2,
        },
        choices={**CLOSE, "brokers": (4, 5), "replication_factor": (2, 3), "producers": ACKED},
    ),
    # Brokers come and go, and everything else goes on.
    "members": Theme(
        faults={
            "remove broker": 6,
            "add broker": 5,
            "kill broker": 4,
            "stop broker": 2,
            "cut power of broker": 2,
            "cut brokers": 3,
            "stall connection": 2,
            "kill operator": 4,
            "pause operator": 3,
            "api flaky": 2,
            "roll brokers": 2,
            "start reassignment": 3,
            "end reassignment": 2,
            "start rebalance": 3,
            "end rebalance": 2,
            "pause rebalance": 1,
            "change replication factor": 2,
            "add partitions": 1,
            "recreate topic": 1,
        },
        choices={
            "brokers": (4, 5),
            "replication_factor": (2, 3),
            "fault_gap_ms": (400, 1_500),
            "flap_wait_ms_max": (1_000, 4_000),
        },
    ),
    # Brokers are restarted on purpose, by operators that come and go, while replicas move.
    "rolls": Theme(
        faults={
            "roll brokers": 8,
            "start reassignment": 4,
            "end reassignment": 2,
            "change replication factor": 1,
            "pause operator": 3,
            "kill operator": 2,
            "api flaky": 1,
            "kill broker": 1,
            "cut brokers": 1,
        },
        choices={
            "brokers": (4, 5),
            "operators": (2,),
            "partitions": (2, 3),
            "replication_factor": (3, 3, 4),
            "min_isr": (1, 2, 2),
            "fault_gap_ms": (1_500, 4_000),
            "burst": (0.0, 0.3),
            "nervous": (0.0, 0.02),
            "at_once": (1, 2),
            "heal_ms": (2_000, 8_000),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000, 5_000),
            "producers": ACKED,
        },
    ),
    **DISKS,
}
