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
            "latency_us": ((1_000, 40_000), (5_000, 200_000)),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
    # Somebody hears of everything too late, or not at all for a while.
    "late news": Theme(
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
    # What brokers remember, or said, in earlier lives.
    "other lives": Theme(
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
    "overtaken": Theme(
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
    # Everybody is gone, and somebody comes back with less than was there.
    "outages": Theme(
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
    "cancels": Theme(
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
    "two terms": Theme(
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
    "turns": Theme(
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
    # Leadership comes back to where somebody still waits for a record.
    "waits": Theme(
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
    # Leaders die right after they went on without somebody.
    "heirs": Theme(
        faults={"elect_leader_with_stale_hw": 6, "kill_broker": 1, "cut_link_between_brokers": 1},
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
            "degrade_api_server": 5,
            "stop_api_server": 2,
            "hang_api_server": 2,
            "cut_operator_from_api_server": 4,
            "kill_operator": 5,
            "pause_operator": 5,
            "stop_operator": 2,
            "restore_etcd": 1,
            "kill_broker": 5,
            "change_min_isr": 3,
            "elect_preferred_leaders": 2,
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
            "start_reassignment": 6,
            "end_reassignment": 4,
            "change_replication_factor": 2,
            "move_replicas": 2,
            "cancel_move": 2,
            "elect_preferred_leaders": 3,
            "kill_broker": 4,
            "cut_link_between_brokers": 3,
            "change_min_isr": 3,
            "add_partitions": 1,
            "recreate_topic": 1,
            "stall_connection": 3,
            "kill_operator": 2,
        },
        choices={**CLOSE, "brokers": (4, 5), "replication_factor": (2, 3), "producers": ACKED},
    ),
    # Brokers come and go, and everything else goes on.
    "members": Theme(
        faults={
            "remove_broker": 6,
            "add_broker": 5,
            "kill_broker": 4,
            "stop_broker": 2,
            "cut_power_of_broker": 2,
            "cut_link_between_brokers": 3,
            "stall_connection": 2,
            "kill_operator": 4,
            "pause_operator": 3,
            "degrade_api_server": 2,
            "roll_brokers": 2,
            "start_reassignment": 3,
            "end_reassignment": 2,
            "start_rebalance": 3,
            "end_rebalance": 2,
            "pause_rebalance": 1,
            "change_replication_factor": 2,
            "add_partitions": 1,
            "recreate_topic": 1,
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
            "roll_brokers": 8,
            "start_reassignment": 4,
            "end_reassignment": 2,
            "change_replication_factor": 1,
            "pause_operator": 3,
            "kill_operator": 2,
            "degrade_api_server": 1,
            "kill_broker": 1,
            "cut_link_between_brokers": 1,
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
