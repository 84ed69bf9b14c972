"""Runs in which messages to controllers outlive their terms."""

from __future__ import annotations

from plimsoll_sim.engine.draws import LatencyUs
from plimsoll_sim.runs.profiles.profile import ACKED, STORY, Profile

FAIL_OVERS: dict[str, Profile] = {
    # A proposal arrives when its leader has long heard from another term that it is not applied.
    "fail-overs": Profile(
        faults={
            "deliver_proposal_two_terms_late": 8,
            "cut_link_between_brokers": 1,
            "kill_operator": 1,
        },
        choices={
            **STORY,
            "brokers": (3,),
            "replication_factor": (3,),
            "min_isr": (1, 2),
            "partitions": (1,),
            "operators": (2,),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((200, 2_000),),
            "flush_messages": (None,),
            "chores_faster": (1,),
            "latency_us": (LatencyUs(1_000, 40_000), LatencyUs(5_000, 200_000)),
            "fault_gap_ms": (400,),
            "producers": ACKED,
            "consumers": (0,),
        },
    ),
}
