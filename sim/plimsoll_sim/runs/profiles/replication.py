"""Runs about leaders, followers and in-sync sets."""

from __future__ import annotations

from plimsoll_sim.engine.draws import LatencyUs
from plimsoll_sim.runs.profiles.profile import ACKED, CLOSE, STORY, THREE, Profile

REPLICATION: dict[str, Profile] = {
    # Leaders change hands while followers lag, join and leave.
    "hand-over": Profile(
        faults={
            "cut_link_between_brokers": 6,
            "kill_broker": 6,
            "stop_broker": 6,
            "slow_link": 3,
            "stall_sends_of_broker": 2,
            "elect_preferred_leaders": 2,
            "reelect_uninformed_leader": 5,
            "elect_leader_with_stale_hw": 5,
        },
        choices={
            **CLOSE,
            **THREE,
            "at_once": (2, 3),
            "heal_ms": (2_000,),
            "nervous": (0.3, 0.5),
            "latency_us": (LatencyUs(1_000, 40_000), LatencyUs(5_000, 200_000)),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
    # A broker gets all messages late, or none for a while.
    "late news": Profile(
        faults={
            "restart_follower_during_proposal": 8,
            "stall_sends_of_broker": 3,
            "stall_metadata_stream": 5,
            "cut_broker_from_controllers": 3,
            "cut_link_between_brokers": 3,
            "kill_broker": 3,
            "elect_preferred_leaders": 2,
            "reelect_uninformed_leader": 3,
            "change_min_isr": 3,
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
    # State and messages of brokers' earlier lives.
    "other lives": Profile(
        faults={
            "deliver_pre_crash_fetch_late": 6,
            "stop_without_controller": 4,
            "restore_disk_with_clean_marker": 4,
            "restart_follower_during_proposal": 2,
            "kill_broker": 2,
            "cut_link_between_brokers": 1,
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
    "overtaken": Profile(
        faults={"delay_proposal": 8, "cut_link_between_brokers": 1, "kill_broker": 1},
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
    # All replicas are lost, and one comes back with fewer records than it had.
    "outages": Profile(
        faults={
            "report_short_log_first": 6,
            "restore_disk_with_clean_marker": 3,
            "cut_power_of_broker": 1,
            "kill_broker": 1,
        },
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
    "cancels": Profile(
        faults={
            "cancel_move_halfway": 6,
            "kill_broker": 1,
            "start_reassignment": 1,
            "move_replicas": 1,
        },
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
    "two terms": Profile(
        faults={
            "diverge_logs_in_two_epochs": 6,
            "cut_link_between_brokers": 1,
            "kill_broker": 1,
            "slow_link": 1,
        },
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
    "turns": Profile(
        faults={
            "deliver_fetch_reply_two_epochs_late": 5,
            "reelect_uninformed_leader": 5,
            "elect_preferred_leaders": 1,
        },
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
    # Leadership returns to a broker on which a client still waits for a record.
    "waits": Profile(
        faults={
            "reelect_leader_with_pending_waits": 6,
            "reelect_uninformed_leader": 2,
            "cut_client_from_broker": 4,
            "cut_link_between_brokers": 3,
        },
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
    # Leaders die right after they went on without a follower.
    "heirs": Profile(
        faults={"elect_leader_with_stale_hw": 6, "kill_broker": 1, "cut_link_between_brokers": 1},
        choices={
            **STORY,
            "brokers": (4, 5),
            "replication_factor": (4,),
            "min_isr": (2,),
            "latency_us": (LatencyUs(5_000, 200_000),),
            "heal_ms": (500,),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((1, 50), (10, 500)),
            "consumers": (2,),
            "producers": ACKED,
        },
    ),
}
