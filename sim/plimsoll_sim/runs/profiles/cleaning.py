"""Runs about compacted topics. Their logs are cleaned all the time; in half of them groups, too.

These profiles are used only if they are named. A tenth of all other runs has compacted topics, too
(`runs.run`).
"""

from __future__ import annotations

from plimsoll_sim.runs.profiles.profile import ACKED, CLOSE, Profile

CLEANING: dict[str, Profile] = {
    "cleaning": Profile(
        faults={
            "cut_power_of_broker": 4,
            "cut_power_of_all_brokers": 1,
            "crash_broker_at_io": 6,
            "kill_broker": 4,
            "stop_broker": 3,
            "cut_link_between_brokers": 3,
            "restore_disk_image": 1,
            "fill_disk": 1,
            "step_wall_clock": 1,
            "recreate_topic": 2,
        },
        choices={
            **CLOSE,
            "compacted": (True,),
            "replication_factor": (2, 3),
            "min_isr": (1, 2),
            "partitions": (1, 2),
            "flush_messages": (None, None, 1),
            "segment_bytes": (200, 300, 600),
            "chores_faster": (1, 5),
            "lag_time_max_ms": (1_000, 5_000),
            "retention_bytes": (None,),
            "retention_ms": (None,),
            "producers": ACKED,
            "committers": (0, 0, 2),
            "members": ((), (), (("eager", "static"),)),
            "offsets_partitions": (1, 2),
        },
    ),
}
_ABOUT = CLEANING["cleaning"]
CLEANING["cleaning and deleting"] = Profile(
    faults={
        **_ABOUT.faults,
        "delete_records": 8,
        "change_retention": 3,
        "elect_leader_behind_log_start": 3,
        "elect_preferred_leaders": 2,
    },
    choices={
        **_ABOUT.choices,
        "deletes_too": (True,),
        "retention_bytes": (None, 300, 1_000),
        "retention_ms": (None, None, 2_000, 10_000),
    },
)
"""Profile of topics with both policies: log starts rise, also into batches that a cleaner
removed."""
CLEANING["cleaning and electing"] = Profile(
    faults={
        "elect_half_copied_replica": 12,
        "kill_broker": 2,
        "stop_broker": 2,
        "cut_power_of_broker": 1,
        "elect_preferred_leaders": 2,
    },
    choices={
        **_ABOUT.choices,
        "min_isr": (1, 1, 2),
        "unclean_recovery": ("Balanced", "Proactive", "Proactive"),
    },
)
"""Profile of leaders that were elected in the middle of a copy of a cleaned log."""
