"""Runs about controllers and their metadata log, moves, members, restarts and renamed objects."""

from __future__ import annotations

from plimsoll_sim.runs.profiles.profile import ACKED, CLOSE, Profile

OPERATIONS: dict[str, Profile] = {
    # Controllers fight for their log on an API server in bad shape.
    "log": Profile(
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
            # Longer than a Lease lasts: another one leads when a process goes on.
            "heal_ms": (8_000, 30_000),
            "operators": (2,),
            "slots": (16,),
            "slice_partitions_max": (1, 2, 1_000),
            "partitions": (2, 3),
        },
    ),
    # Replicas move, topics change, and the rest goes on.
    "moves": Profile(
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
    "members": Profile(
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
    # Other clients delete and change objects that operators made.
    "objects": Profile(
        faults={
            "delete_pod": 4,
            "delete_child": 6,
            "change_stateful_set": 4,
            "start_verification": 4,
            "roll_brokers": 3,
            "remove_broker": 2,
            "add_broker": 2,
            "kill_operator": 2,
            "pause_operator": 2,
            "degrade_api_server": 2,
            "cut_operator_from_api_server": 2,
            "recreate_topic": 1,
        },
        choices={"brokers": (4,), "replication_factor": (2, 3), "fault_gap_ms": (400, 1_500)},
    ),
    # Brokers are restarted on purpose, by operators that come and go, while replicas move.
    "rolls": Profile(
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
}


HOURS = {
    # Everything voluntary is asked for, and waits for its hours.
    "hours": Profile(
        faults={
            "change_windows": 4,
            "pause_cluster": 4,
            "hibernate_cluster": 3,
            "roll_brokers": 6,
            "remove_broker": 3,
            "add_broker": 3,
            "start_reassignment": 3,
            "move_replicas": 2,
            "start_rebalance": 2,
            "kill_broker": 2,
            "kill_operator": 1,
        },
        choices={
            "brokers": (4, 5),
            "replication_factor": (2, 3),
            "fault_gap_ms": (1_500, 4_000),
            "heal_ms": (8_000, 20_000),
            "flap_wait_ms_max": (1_000,),
            "at_once": (2, 3),
            "producers": ACKED,
        },
    ),
}


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
