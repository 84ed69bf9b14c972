"""Runs about disks and what they hold, and about strangers.  As in `themes`."""

from __future__ import annotations

from plimsoll_sim.theme import ACKED, CLOSE, STORY, THREE, Theme

DISKS: dict[str, Theme] = {
    # What is on the disks after a crash, and whether it may be trusted.
    "disks": Theme(
        faults={
            "cut power of broker": 6,
            "cut power of all": 2,
            "crash at io": 5,
            "stop broker": 5,
            "old disk": 4,
            "kill broker": 3,
            "cut brokers": 3,
            "disk full": 1,
        },
        choices={
            **CLOSE,
            "at_once": (2, 3),
            "replication_factor": (2, 3),
            "min_isr": (2, 3),
            "flush_messages": (None, None, 1),
            "segment_bytes": (200, 1_000),
            "lag_time_max_ms": (1_000,),
            "producers": ACKED,
        },
    ),
    # Old records go, and whoever was away begins again where the others do.
    "beginnings": Theme(
        faults={
            "left behind": 8,
            "delete records": 5,
            "change retention": 2,
            "step wall clock": 3,
            "kill broker": 2,
            "cut power of broker": 1,
            "crash at io": 1,
            "cut brokers": 1,
        },
        choices={
            **STORY,
            "brokers": (3,),
            "replication_factor": (2, 3),
            "min_isr": (1, 2),
            "partitions": (1, 2),
            "at_once": (1, 2),
            "retention_bytes": (None, 300, 1_000),
            "retention_ms": (None, 5_000, 20_000),
            "segment_bytes": (100, 200, 300),
            "chores_faster": (20,),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((50, 500),),
            "producers": ACKED,
        },
    ),
    # What was flushed stays, whatever loses power, and what was cut stays cut.
    "flushed": Theme(
        faults={
            "cut power of broker": 6,
            "cut power of all": 4,
            "two terms": 8,
            "unflushed heir": 8,
            "crash at io": 2,
            "cut brokers": 4,
            "kill broker": 2,
            "stop broker": 1,
            "slow disk": 1,
            "delete records": 3,
            "change retention": 2,
        },
        choices={
            **CLOSE,
            "at_once": (2, 3),
            "replication_factor": (2, 3),
            "min_isr": (1, 2),
            "partitions": (1, 2),
            "flush_messages": (1,),
            "retention_bytes": (None, 300, 1_000),
            "chores_faster": (1, 20),
            "segment_bytes": (200, 300, 600),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "unclean_recovery": ("Balanced",),
            "producers": (*ACKED, ((1, False), (-1, True))),
        },
    ),
    # Disks fill, and have room again.
    "room": Theme(
        faults={
            "disk full": 5,
            "full amid a proposal": 8,
            "kill broker": 1,
            "cut brokers": 1,
        },
        choices={
            **STORY,
            **THREE,
            "at_once": (1, 2),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "chores_faster": (20,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
    # Somebody who is no broker says that he is one.
    "strangers": Theme(
        faults={"stranger": 8, "cut brokers": 3, "slow link": 2, "kill broker": 1},
        choices={
            **CLOSE,
            **THREE,
            "at_once": (2, 3),
            "lag_time_max_ms": (5_000, 30_000),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
}
