"""Runs about transactions in logs: leaders that die between a batch and its marker, unclean
elections, retention and DeleteRecords into open transactions, cleaning beside them.

These profiles are used only if they are named. A quarter of all runs without a profile has
transactions, too (`runs.drawn_options`).
"""

from __future__ import annotations

from plimsoll_sim.runs.profiles.profile import CLOSE, Profile

_FAULTS = {
    "kill_broker": 6,
    "stop_broker": 3,
    "crash_broker_at_io": 6,
    "cut_power_of_broker": 3,
    "cut_power_of_all_brokers": 1,
    "cut_link_between_brokers": 4,
    "elect_preferred_leaders": 4,
    "lose_file": 2,
    "fill_disk": 1,
}
_CHOICES = {
    **CLOSE,
    "transactions": (1, 2, 3),
    "replication_factor": (2, 3),
    "min_isr": (1, 2),
    "partitions": (1, 2),
    "segment_bytes": (200, 600, 2_000, 1_000_000),
    "think_ms": ((1, 50), (5, 100)),
    "chores_faster": (1, 5, 20),
    "lag_time_max_ms": (1_000, 5_000),
    "producers": (((-1, True),), ((-1, True), (-1, False))),
}

TRANSACTIONS: dict[str, Profile] = {
    "transactions": Profile(faults=_FAULTS, choices=_CHOICES),
    "transactions and deletions": Profile(
        faults={
            **_FAULTS,
            "delete_records": 6,
            "change_retention": 3,
            "elect_leader_with_stale_hw": 3,
            "restore_disk_image": 2,
            "recreate_topic": 1,
        },
        choices={
            **_CHOICES,
            "retention_bytes": (None, 300, 1_000),
            "retention_ms": (None, None, 2_000, 10_000),
            "unclean_recovery": ("Balanced", "Balanced", "Proactive"),
        },
    ),
    "transactions and cleaning": Profile(
        faults=_FAULTS,
        choices={
            **_CHOICES,
            "compacted": (True,),
            "segment_bytes": (200, 300, 600),
            "retention_bytes": (None,),
            "retention_ms": (None,),
        },
    ),
    "coordinated transactions": Profile(
        faults=_FAULTS,
        choices={
            **_CHOICES,
            "transactions": (0,),
            "coordinated": (2, 3),
            "offsets_partitions": (1, 2),
            "producers": ((),),
            "retention_bytes": (None,),
            "retention_ms": (None,),
        },
    ),
}
