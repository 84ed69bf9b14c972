"""Rows of the operator's metrics. docs/observability.md is generated from them."""

from __future__ import annotations

from plimsoll_core.cluster.state_changes import KINDS as STATE_CHANGES
from plimsoll_core.controller.security.security_share import BOUNDS as SECURITY_KINDS
from plimsoll_process.metric_table import PROCESS_ROWS, MetricRow, MetricTable, loop_rows

PREFIX = "plimsoll_operator_"
CLUSTER = ("namespace", "cluster")
BROKER = (*CLUSTER, "broker")
_EACH = "1 per cluster"
EACH_LED = "1 per led cluster"
BUCKETS_EACH_LED = "14 buckets per led cluster"
_EACH_BROKER = "1 per broker"


def _led(name: str, text: str) -> MetricRow:
    return MetricRow(f"plimsoll_{name}", "gauge", text, CLUSTER, EACH_LED)


IMAGE_ROWS = (
    _led("controller_epoch", "Epoch of the controller"),
    _led("metadata_offset", "Committed metadata records"),
    _led("topics", "Topics"),
    _led("topics_pending_deletion", "Topics without their object"),
    _led("partitions", "Partitions"),
    _led("partitions_offline", "Partitions without a leader"),
    _led("partitions_under_replicated", "Partitions with a replica missing from the ISR"),
    _led("partitions_under_min_isr", "Partitions with a leader and an ISR below min ISR"),
    _led("partitions_at_min_isr", "Partitions exactly at min ISR"),
    _led("partitions_reduced_to_min_isr",
         "Partitions exactly at min ISR with a replica out of sync"),
    _led("partitions_moving", "Partitions being moved"),
    _led("partitions_not_led_by_preferred", "Partitions not led by their preferred replica"),
    _led("move_left_bytes", "Bytes that moves still have to copy, as reported by brokers"),
    _led("restart_grants", "Brokers with a committed grant to restart"),
    _led("reassignments_running", "Running Reassignments"),
    _led("rebalances_running", "Running Rebalances"),
    _led("moves_paused", "Paused Reassignments and Rebalances"),
    _led("metadata_restored_timestamp_seconds",
         "When the metadata log was last restored from brokers' copies; 0: never"),
    _led("hibernated", "1 from the beginning of a hibernation until its brokers lead again"),
    _led("paused", "1 while `spec.paused` holds voluntary work back"),
    _led("maintenance_window_open",
         "1 while voluntary work may begin by `spec.maintenance.windows`, also without windows"),
    _led("brokers_desired", "Members"),
    _led("brokers_ready", "Active members"),
    _led("brokers_fenced", "Fenced members"),
    MetricRow("plimsoll_partitions_by_margin", "gauge",
              "Partitions by availability margin, |ISR| - min ISR; -1: below min ISR, 2: two or"
              " more", (*CLUSTER, "margin"), "4 per led cluster"),
    MetricRow("plimsoll_security_entries", "gauge",
              "Committed entries: " + ", ".join(SECURITY_KINDS), (*CLUSTER, "kind"),
              "4 per led cluster"),
    MetricRow("plimsoll_security_entries_largest", "gauge",
              "Those of the namespace with most, or of all clients",
              (*CLUSTER, "kind"), "4 per led cluster"),
    MetricRow("plimsoll_member_leaderships", "gauge",
              "Partitions led by a broker", BROKER, _EACH_BROKER),
    MetricRow("plimsoll_member_replicas", "gauge", "Replicas on a broker", BROKER, _EACH_BROKER),
    MetricRow("plimsoll_member_fenced", "gauge",
              "1 for a member that is fenced or stops, unless it joins, or a grant or drain"
              " covers it", BROKER, _EACH_BROKER),
    MetricRow("plimsoll_metadata_backlog_records", "gauge",
              "Committed metadata records that a broker has not applied, by its last heartbeat",
              BROKER, _EACH_BROKER),
    MetricRow("plimsoll_metadata_backlog_seconds", "gauge",
              "Age of the oldest committed metadata record that a broker has not applied",
              BROKER, _EACH_BROKER),
    MetricRow("plimsoll_heartbeat_age_seconds", "gauge",
              "Time since a broker's last heartbeat", BROKER, _EACH_BROKER),
)  # fmt: skip

ISR_SIZE = MetricRow("plimsoll_partition_isr_size", "gauge",
                     "Size of the ISR; clusters with at most 2,000 partitions only",
                     (*CLUSTER, "topic", "partition"),
                     "1 per partition, at most 2,000 per cluster")  # fmt: skip
"""The metric with by far the most series; `gauges` renders it."""

CONTROLLER_ROWS = (
    MetricRow("plimsoll_controller_commits", "counter",
              "Batches committed to the metadata log", CLUSTER, EACH_LED),
    MetricRow("plimsoll_controller_records", "counter",
              "Records committed to the metadata log", CLUSTER, EACH_LED),
    MetricRow("plimsoll_controller_commit_failures", "counter",
              "Failed appends to the metadata log", CLUSTER, EACH_LED),
    MetricRow("plimsoll_controller_commit_seconds", "histogram",
              "Duration of an append to the metadata log", CLUSTER, BUCKETS_EACH_LED),
    MetricRow("plimsoll_controller_loop_lag_seconds", "histogram",
              "Delay of the controller's periodic step", CLUSTER, BUCKETS_EACH_LED),
    MetricRow("plimsoll_controller_take_overs", "counter",
              "Controller terms that this process began", CLUSTER, EACH_LED),
    MetricRow("plimsoll_controller_commit_pending_seconds", "gauge",
              "Age of the running append; 0: none", CLUSTER, EACH_LED),
    MetricRow("plimsoll_controller_queued_decisions", "gauge",
              "Decisions not committed yet", CLUSTER, EACH_LED),
    MetricRow("plimsoll_controller_client_requests_waiting", "gauge",
              "Clients' requests that wait for their turn", CLUSTER, EACH_LED),
    MetricRow("plimsoll_controller_take_over_seconds", "gauge",
              "Duration of the last take-over, from reading the log to its first commit", CLUSTER,
              EACH_LED),
    MetricRow("plimsoll_metadata_log_slots_used", "gauge",
              "Objects of the metadata log with batches that no snapshot covers", CLUSTER,
              EACH_LED),
    MetricRow("plimsoll_metadata_log_slots", "gauge",
              "Objects available for batches", CLUSTER, EACH_LED),
    MetricRow("plimsoll_metadata_log_batch_bytes", "gauge",
              "Bytes of batches that no snapshot covers", CLUSTER, EACH_LED),
    MetricRow("plimsoll_metadata_log_snapshot_bytes", "gauge",
              "Stored bytes of the last snapshot", CLUSTER, EACH_LED),
)  # fmt: skip

COUNTER_ROWS = (
    MetricRow("plimsoll_isr_shrinks", "counter",
              "Replicas that left an ISR, by broker and cause; planned: a grant, drain, move or"
              " Eviction covers it", (*BROKER, "cause", "planned"), "9 per broker"),
    MetricRow("plimsoll_isr_expands", "counter", "Replicas that joined an ISR", CLUSTER, _EACH),
    MetricRow("plimsoll_leader_elections", "counter",
              "Elections of another leader, by cause", (*CLUSTER, "cause"), "10 per cluster"),
    MetricRow("plimsoll_unclean_elections", "counter",
              "Elections of a leader that may lack acknowledged records", CLUSTER, _EACH),
    MetricRow("plimsoll_state_changes_requested", "counter",
              "State changes that commits requested of a broker's replicas: "
              + ", ".join(STATE_CHANGES), (*BROKER, "change"), "4 per broker"),
    MetricRow("plimsoll_fencings", "counter",
              "Fencings of a broker, by reason", (*BROKER, "reason"), "5 per broker"),
)  # fmt: skip

UNCLEAN_ROWS = (
    MetricRow("plimsoll_unclean_recovery_partitions", "gauge",
              "Unclean elections of the last day; loss certain: another replica knew of records"
              " that the leader lacks; possible: it may lack some", (*CLUSTER, "loss"),
              "2 per led cluster"),
    MetricRow("plimsoll_unclean_recovery_time_seconds", "gauge",
              "Unix time of the last unclean election; 0: none", CLUSTER, EACH_LED),
)  # fmt: skip

ARCHIVE_ROWS = (
    MetricRow("plimsoll_history_behind_seconds", "gauge",
              "Age of the oldest change that is not in the history's archive; 0: none", CLUSTER,
              EACH_LED),
    MetricRow("plimsoll_history_rows_dropped", "counter",
              "Changes that the history's archive marks as unknown, because it could not be"
              " written for too long", CLUSTER, EACH_LED),
)  # fmt: skip

BACKUP_ROWS = (
    MetricRow("plimsoll_backup_behind_seconds", "gauge",
              "Age of the oldest committed metadata that is not in the backup; 0: none", CLUSTER,
              "1 per led cluster with a backup"),
    MetricRow("plimsoll_backup_stored_time_seconds", "gauge",
              "Time at which metadata was backed up last", CLUSTER,
              "1 per led cluster with a backup"),
    MetricRow("plimsoll_backup_bytes", "gauge", "Bytes of the backup", CLUSTER,
              "1 per led cluster with a backup"),
    MetricRow("plimsoll_backup_proven_time_seconds", "gauge",
              "Time of the last successful restore drill; 0: none", CLUSTER,
              "1 per led cluster with a backup"),
    MetricRow("plimsoll_backup_drill_overdue_seconds", "gauge",
              "For how long a restore drill is due that has not succeeded; 0: none is", CLUSTER,
              "1 per led cluster with a backup"),
)  # fmt: skip

CERTIFICATE_ROWS = (
    MetricRow("plimsoll_certificate_expiry_time_seconds", "gauge",
              "Unix time at which a listener's first certificate expires; kind own (cluster's CA)"
              " or given; without listener a CA: authority (listeners), clients-authority,"
              " internal-authority", (*CLUSTER, "listener", "kind"),
              "1 per listener with TLS, and up to 3, per led cluster"),
)  # fmt: skip

OBJECT_ROWS = (
    MetricRow("plimsoll_cluster_known", "gauge", "1 for every LogCluster seen", CLUSTER, _EACH),
    MetricRow("plimsoll_controller_active", "gauge",
              "1 if this process leads the cluster", CLUSTER, EACH_LED),
    MetricRow("plimsoll_stalled", "gauge",
              "1 for an object that is Stalled or has an unreadable spec",
              ("namespace", "kind", "name", "reason"), "at most 100"),
    MetricRow("plimsoll_not_ready_objects", "gauge", "Objects with Ready=False",
              ("kind",), "8"),
    MetricRow("plimsoll_verifications", "gauge",
              "Verifications by verdict (empty: none yet)", ("namespace", "verdict"),
              "4 per namespace"),
    MetricRow("plimsoll_verification_violated", "gauge",
              "1 for a Verification with the verdict Violated", ("namespace", "name"),
              "at most 100"),
    MetricRow("plimsoll_verification_judged_time_seconds", "gauge",
              "Unix time up to which a continuous Verification is judged", ("namespace", "name"),
              "at most 100"),
    MetricRow("plimsoll_verification_schedule_periods_without_verdict", "gauge",
              "Due times of a VerificationSchedule since its last run with a verdict",
              ("namespace", "name"), "at most 100"),
    MetricRow("plimsoll_blocked_actions", "gauge",
              "Waiting voluntary actions, by reason", (*BROKER, "action", "reason"),
              "1 per waiting action and reason"),
    MetricRow("plimsoll_blocked_action_start_time_seconds", "gauge",
              "Unix time at which the action began to wait", (*BROKER, "action", "reason"),
              "1 per waiting action and reason"),
)  # fmt: skip

RECONCILE_ROWS = (
    MetricRow("plimsoll_reconcile_seconds", "histogram",
              "Duration of a reconcile pass", ("task",), "14 buckets × 9"),
    MetricRow("plimsoll_reconcile_retries", "counter", "Passes that are retried", ("task",), "9"),
    MetricRow("plimsoll_reconcile_running_seconds", "gauge",
              "Age of the longest running pass", CLUSTER, EACH_LED),
    MetricRow("plimsoll_reconcile_failing_seconds", "gauge",
              "Longest time for which all passes over one object have failed", CLUSTER,
              EACH_LED),
    MetricRow("plimsoll_reconcile_waiting", "gauge",
              "Objects that wait for a pass", CLUSTER, EACH_LED),
)  # fmt: skip

PROCESS = (
    MetricRow("plimsoll_operator_up", "gauge", "1 while this operator process runs"),
    MetricRow("plimsoll_operator_handler_failures", "counter",
              "Internal errors, by request or kind of pass (Reconcile…); Look, Status,"
              " Metrics: reading and reporting; Leading: it ended a term of a cluster",
              ("request",), "20"),
    MetricRow("plimsoll_controller_peers_refused", "counter",
              "Connections to the controllers' port that were refused or failed their handshake",
              ("reason",), "9"),
    MetricRow("plimsoll_operator_api_requests", "counter",
              "Requests to the API server, by class of the answer (none: no answer)",
              ("method", "answer"), "25"),
    MetricRow("plimsoll_operator_api_request_seconds", "histogram",
              "Duration of a request to the API server, without watches", ("method",),
              "14 buckets × 5"),
)  # fmt: skip

ROWS = (
    *IMAGE_ROWS, ISR_SIZE, *COUNTER_ROWS, *UNCLEAN_ROWS, *CONTROLLER_ROWS, *ARCHIVE_ROWS,
    *BACKUP_ROWS, *CERTIFICATE_ROWS, *OBJECT_ROWS, *RECONCILE_ROWS, *PROCESS,
    *loop_rows(PREFIX), *PROCESS_ROWS,
)  # fmt: skip
TABLE = MetricTable(*ROWS)
