"""The table of all faults of random runs: name, function, how often each is drawn, and what it
tests.

`schedule` draws from it; `runs.options` chooses which of them take part in a run. A fault has the
name of its function, or of its module in `scripts`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_sim.faults import (
    api_server,
    backups,
    clients,
    disks,
    hours,
    inside,
    links,
    objects,
    processes,
    topics,
)
from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.faults.scripts import (
    cancel_move_halfway,
    delay_proposal,
    delete_beside_elr,
    deliver_fetch_reply_two_epochs_late,
    deliver_pre_crash_fetch_late,
    deliver_proposal_two_terms_late,
    diverge_logs_in_two_epochs,
    elect_half_copied_replica,
    elect_leader_behind_log_start,
    elect_leader_with_stale_hw,
    elect_leader_with_unflushed_log,
    fill_disk_during_proposal,
    lose_file,
    reelect_leader_with_pending_waits,
    reelect_uninformed_leader,
    report_short_log_first,
    restart_follower_during_proposal,
    restore_disk_with_clean_marker,
    restore_etcd_behind_broker,
    restore_from_backup,
    stop_without_controller,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    """Name of the fault in options, profiles, events and documents."""
    strike: Callable[[FaultContext, random.Random], str | None]
    """Function that causes the fault, with the random numbers of this occurrence. It returns the
    target as text for people, or None if there was none. A fault that lasts schedules its own
    end."""
    weight: int
    """How often the fault is drawn, relative to the other faults of a run without a profile; 0:
    only if a profile asks for it."""
    purpose: str
    """The behaviour that the fault tests."""
    rare: bool = False
    """True if the fault takes part in few runs, because it makes a run unable to converge, or hides
    other errors."""


TABLE: tuple[Fault, ...] = (
    Fault("kill_broker", processes.kill_broker, 6, "SIGKILL: the page cache survives."),
    Fault("stop_broker", processes.stop_broker, 4, "SIGTERM: a controlled shutdown."),
    Fault(
        "cut_power_of_broker",
        processes.cut_power_of_broker,
        4,
        "A lossy stop: what was not synced is lost, of files and of directories.",
    ),
    Fault(
        "cut_power_of_all_brokers",
        processes.cut_power_of_all_brokers,
        1,
        "Lossy stops of every replica at once.",
    ),
    Fault("crash_broker_at_io", processes.crash_broker_at_io, 4, "A crash between two writes."),
    Fault(
        "pause_broker",
        processes.pause_broker,
        4,
        "A process that sleeps longer than its session, and does not notice.",
    ),
    Fault(
        "fill_disk", disks.fill_disk, 2, "Appends fail, reads do not; logs come back by themselves."
    ),
    Fault("break_disk", disks.break_disk, 1, "I/O errors take logs out of service.", rare=True),
    Fault(
        "replace_disk_with_empty",
        disks.replace_disk_with_empty,
        1,
        "A volume that was lost.",
        rare=True,
    ),
    Fault(
        "restore_disk_image",
        disks.restore_disk_image,
        1,
        "A volume that was restored from a snapshot.",
        rare=True,
    ),
    Fault(
        "cut_link_between_brokers",
        links.cut_link_between_brokers,
        5,
        "Followers that fall out of the ISR while the controller sees both brokers.",
    ),
    Fault(
        "cut_broker_from_controllers",
        links.cut_broker_from_controllers,
        5,
        "A broker that is fenced while it serves clients and followers.",
    ),
    Fault(
        "cut_client_from_broker",
        links.cut_client_from_broker,
        3,
        "Acknowledgements that are lost: retries, batches in flight.",
    ),
    Fault(
        "slow_link", links.slow_link, 4, "Messages that overtake each other over different ways."
    ),
    Fault(
        "stall_connection",
        links.stall_connection,
        3,
        "Messages that arrive after their sender has ended.",
    ),
    Fault(
        "stall_sends_of_broker",
        links.stall_sends_of_broker,
        2,
        "Fetches, replies and reports of one broker that arrive together, late.",
    ),
    Fault(
        "stall_metadata_stream",
        links.stall_metadata_stream,
        2,
        "A broker that acts on old metadata.",
    ),
    Fault("kill_operator", processes.kill_operator, 4, "A controller failover."),
    Fault("stop_operator", processes.stop_operator, 2, "A controller that releases its Lease."),
    Fault(
        "pause_operator",
        processes.pause_operator,
        4,
        "A deposed controller that wakes up and goes on.",
    ),
    Fault(
        "cut_operator_from_api_server",
        api_server.cut_operator_from_api_server,
        3,
        "A controller that can commit nothing and is replaced.",
    ),
    Fault(
        "stop_api_server",
        api_server.stop_api_server,
        2,
        "No controller can commit: the cluster goes on without elections.",
    ),
    Fault(
        "hang_api_server",
        api_server.hang_api_server,
        2,
        "Appends with an outcome that stays unknown for long.",
    ),
    Fault(
        "degrade_api_server",
        api_server.degrade_api_server,
        4,
        "Appends with an unknown outcome that are carried out late.",
    ),
    Fault(
        "step_wall_clock",
        processes.step_wall_clock,
        2,
        "Retention by age under a clock that is wrong.",
    ),
    Fault("slow_disk", disks.slow_disk, 2, "Syncs and searches in threads that others overtake."),
    Fault(
        "change_retention", topics.change_retention, 2, "Log starts that move by size and by age."
    ),
    Fault(
        "delete_records",
        clients.delete_records,
        3,
        "Log starts that move to any offset, also within a batch.",
    ),
    Fault(
        "elect_leader_behind_log_start",
        elect_leader_behind_log_start.strike,
        1,
        "Followers that must cut below their own log start.",
    ),
    Fault(
        "fetch_as_impostor",
        clients.fetch_as_impostor,
        2,
        "Only a registered broker, on the replication port, may count for a quorum.",
    ),
    Fault(
        "fill_disk_during_proposal",
        fill_disk_during_proposal.strike,
        1,
        "A leader that forgets its proposal.",
    ),
    Fault(
        "elect_leader_with_unflushed_log",
        elect_leader_with_unflushed_log.strike,
        1,
        "A leader that counts what it has not flushed.",
    ),
    Fault("recreate_topic", topics.recreate_topic, 1, "A topic of the same name and another id."),
    Fault("change_min_isr", topics.change_min_isr, 3, "High watermarks that freeze and go on."),
    Fault(
        "add_partitions", topics.add_partitions, 1, "Partitions that begin amid everything else."
    ),
    Fault(
        "start_reassignment",
        objects.start_reassignment,
        6,
        "Moves that an object asks for, under limits or not.",
    ),
    Fault(
        "end_reassignment",
        objects.end_reassignment,
        3,
        "Moves that are cancelled with their object.",
    ),
    Fault(
        "change_replication_factor",
        topics.change_replication_factor,
        2,
        "Moves that add or drop replicas.",
    ),
    Fault("start_rebalance", objects.start_rebalance, 5, "Plans of every mode, and their waves."),
    Fault("end_rebalance", objects.end_rebalance, 2, "Plans that are given up half-way."),
    Fault(
        "pause_rebalance",
        objects.pause_rebalance,
        2,
        "Plans that go on in another cluster than they were made for.",
    ),
    Fault("move_replicas", clients.move_replicas, 3, "Moves that replace a move under way."),
    Fault("cancel_move", clients.cancel_move, 2, "A cancel by a client's request."),
    Fault(
        "elect_preferred_leaders",
        clients.elect_preferred_leaders,
        3,
        "Elections without a failure.",
    ),
    Fault(
        "restart_follower_during_proposal",
        restart_follower_during_proposal.strike,
        2,
        "A proposal that names an earlier broker epoch.",
    ),
    Fault(
        "reelect_uninformed_leader",
        reelect_uninformed_leader.strike,
        2,
        "A leader that skips the epoch in which it did not lead.",
    ),
    Fault(
        "elect_leader_with_stale_hw",
        elect_leader_with_stale_hw.strike,
        2,
        "A follower that may not join before it reaches the epoch's start offset.",
    ),
    Fault(
        "stop_without_controller",
        stop_without_controller.strike,
        1,
        "A clean stop that no controller granted or saw.",
    ),
    Fault(
        "deliver_pre_crash_fetch_late",
        deliver_pre_crash_fetch_late.strike,
        2,
        "A fetch that proves nothing about the log of the lifetime after it.",
    ),
    Fault(
        "restore_disk_with_clean_marker",
        restore_disk_with_clean_marker.strike,
        1,
        "A marker of a clean stop that was not the last stop.",
        rare=True,
    ),
    Fault(
        "diverge_logs_in_two_epochs",
        diverge_logs_in_two_epochs.strike,
        2,
        "Logs that diverge in more than one leader epoch.",
    ),
    Fault(
        "deliver_fetch_reply_two_epochs_late",
        deliver_fetch_reply_two_epochs_late.strike,
        1,
        "A reply to a question that would be asked otherwise now.",
    ),
    Fault(
        "report_short_log_first",
        report_short_log_first.strike,
        1,
        "A recovery that must wait for the complete log.",
    ),
    Fault(
        "cancel_move_halfway",
        cancel_move_halfway.strike,
        1,
        "A cancel that would drop the replica that holds what was acknowledged.",
    ),
    Fault(
        "reelect_leader_with_pending_waits",
        reelect_leader_with_pending_waits.strike,
        1,
        "Waiting requests that end with the leader epoch they were made in.",
    ),
    Fault(
        "damage_batches",
        clients.damage_batches,
        0,
        "A batch that arrives with a flipped bit: refused, never appended, and sent again.",
    ),
    Fault("change_windows", hours.change_windows, 0, "Work that waits for its hours, half-way."),
    Fault("pause_cluster", hours.pause_cluster, 0, "Work that waits, while failures go on."),
    Fault(
        "hibernate_cluster",
        hours.hibernate_cluster,
        0,
        "Brokers that all stop and come back, amid everything else.",
    ),
    Fault("delay_proposal", delay_proposal.strike, 2, "A proposal that is stale when it arrives."),
    Fault(
        "restore_etcd",
        api_server.restore_etcd,
        1,
        "A metadata log that went back in time.",
        rare=True,
    ),
    Fault(
        "lose_metadata_batches",
        api_server.lose_metadata_batches,
        0,
        "A metadata log of which a part or all is deleted.",
    ),
    Fault(
        "restore_etcd_behind_broker",
        restore_etcd_behind_broker.strike,
        0,
        "A log that went back, and beyond a snapshot, while the broker that knows was away.",
    ),
    Fault(
        "fail_bucket",
        backups.fail_bucket,
        0,
        "An export that lags, or that may or may not have stored an object.",
    ),
    Fault(
        "spoil_backup",
        backups.spoil_backup,
        0,
        "A backup that is older, partial, torn, or of another cluster.",
    ),
    Fault(
        "restore_from_backup",
        restore_from_backup.strike,
        0,
        "A metadata log that is lost with brokers' copies of it, and a backup of it.",
    ),
    Fault(
        "deliver_proposal_two_terms_late",
        deliver_proposal_two_terms_late.strike,
        0,
        "A proposal of which the leader was told, in another term, that it is not applied.",
    ),
    Fault(
        "roll_brokers",
        objects.roll_brokers,
        5,
        "Restarts under grants, into revisions that may not start.",
    ),
    Fault(
        "change_client_topic",
        topics.change_client_topic,
        0,
        "A topic without an object. A client changes its configs and partitions.",
    ),
    Fault("remove_broker", objects.remove_broker, 0, "A drain, and a broker that is unregistered."),
    Fault(
        "add_broker",
        objects.add_broker,
        0,
        "A broker id that comes back, with its volume or without.",
    ),
    Fault(
        "rename_topic",
        topics.rename_topic,
        0,
        "A topic that another object declares when its own is deleted.",
    ),
    Fault("delete_pod", objects.delete_pod, 0, "A pod that is deleted without a grant."),
    Fault("delete_child", objects.delete_child, 0, "Children that are made again."),
    Fault(
        "change_stateful_set",
        objects.change_stateful_set,
        0,
        "A template by another client, of which no pod may be made.",
    ),
    Fault(
        "isolate_broker", links.isolate_broker, 0, "A leader that clients reach beyond its lease."
    ),
    Fault(
        "rotate_authority",
        inside.rotate_authority,
        0,
        "Certificates of another authority for all processes, while all goes on.",
    ),
    Fault(
        "step_operators_clocks",
        inside.step_operators_clocks,
        0,
        "Certificates that are due, all at once, or not valid yet.",
    ),
    Fault("mislead_operator", inside.mislead_operator, 0, "A clock by which all is long over."),
    Fault(
        "intrude",
        inside.intrude,
        0,
        "A process is a broker only with that broker's committed certificate.",
    ),
    Fault("change_user", objects.change_user, 0, "Rules, passwords and users that change in use."),
    Fault(
        "change_certified",
        objects.change_certified,
        0,
        "Certificates that are replaced, end or are revoked while they are used.",
    ),
    Fault(
        "lose_status",
        inside.lose_status,
        0,
        "A LogCluster without a status, which remembers what its spec leaves open.",
    ),
    Fault("exhaust_descriptors", disks.exhaust_descriptors, 0, "Files that cannot be opened."),
    Fault("leave_little_room", disks.leave_little_room, 0, "Disks that are nearly full."),
    Fault(
        "read_slowly", links.read_slowly, 0, "Buffers of writers that fill, and have room again."
    ),
    Fault("lose_file", lose_file.strike, 0, "What is gone after a clean stop."),
    Fault(
        "elect_half_copied_replica",
        elect_half_copied_replica.strike,
        0,
        "A leader that has copied half of a cleaned log, and follows again.",
    ),
    Fault(
        "delete_beside_elr",
        delete_beside_elr.strike,
        0,
        "A deletion of which a replica that may be elected cleanly has not heard.",
    ),
    Fault("set_wall_clock_back", processes.set_wall_clock_back, 0, "Commits with old times."),
    Fault("linger", inside.linger, 0, "Connections that outlive what they were let in by."),
    Fault("start_verification", objects.start_verification, 0, "A driver, and what it reports."),
)
FAULTS: dict[str, Fault] = {fault.name: fault for fault in TABLE}
