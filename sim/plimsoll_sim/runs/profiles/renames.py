"""Objects that are renamed: what they declare is handed over, and nothing of it goes."""

from __future__ import annotations

from plimsoll_sim.runs.profiles.profile import ACKED, CLOSE, Profile

RENAMES = {
    "renames": Profile(
        faults={
            "rename_topic": 8,
            "change_min_isr": 2,
            "add_partitions": 1,
            "kill_operator": 2,
            "pause_operator": 2,
            "degrade_api_server": 2,
            "cut_operator_from_api_server": 2,
            "kill_broker": 2,
            "start_reassignment": 1,
        },
        choices={**CLOSE, "fault_gap_ms": (400, 1_500), "producers": ACKED},
    ),
}
