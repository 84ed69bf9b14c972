"""Every metric of the operator, stated once; docs/observability.md is made of these rows."""

from __future__ import annotations

from plimsoll_core.cluster.state_changes import KINDS as STATE_CHANGES
from plimsoll_process.metric_table import PROCESS_ROWS, MetricRow, MetricTable, loop_rows

PREFIX = "plimsoll_operator_"
CLUSTER = ("namespace", "cluster")
BROKER = (*CLUSTER, "broker")
_EACH = "1 per cluster"
_EACH_LED = "1 per cluster that is led here"
_EACH_BROKER = "1 per broker"


def _led(name: str, text: str) -> MetricRow:
    return MetricRow(f"plimsoll_{name}", "gauge", text, CLUSTER, _EACH_LED)


IMAGE_ROWS = (
    _led("controller_epoch", "The controller's term"),
    _led("metadata_offset", "Committed metadata records"),
    _led("topics", "Topics"),
    _led("topics_pending_deletion", "Topics whose object is gone"),
    _led("partitions", "Partitions"),
    _led("partitions_offline", "Partitions without a leader"),
    _led("partitions_under_replicated", "Partitions with less than a full ISR"),
    _led("partitions_under_min_isr", "Partitions below min ISR, and led"),
    _led("partitions_at_min_isr", "Partitions exactly at min ISR"),
    _led("partitions_reduced_to_min_isr",
         "Partitions exactly at min ISR that have a replica which is not in sync"),
    _led("partitions_moving", "Partitions that are being moved"),
    _led("partitions_not_led_by_preferred", "Partitions led by another than their first replica"),
    _led("move_left_bytes", "Bytes that moves have still to copy, as far as brokers told"),
    _led("restart_grants", "Brokers that may be restarted now, by a committed grant"),
    _led("reassignments_running", "Reassignments that are carried out"),
    _led("rebalances_running", "Rebalances that are carried out"),
    _led("moves_paused", "Reassignments and Rebalances that are paused"),
    _led("brokers_desired", "Members"),
    _led("brokers_ready", "Members that take part"),
    _led("brokers_fenced", "Members that are fenced"),
    MetricRow("plimsoll_partitions_by_margin", "gauge",
              "Partitions by how many members of the ISR may leave before min ISR is not met;"
              " -1: it is not met now; 2: or more", (*CLUSTER, "margin"),
              "4 per cluster that is led here"),
    MetricRow("plimsoll_member_leaderships", "gauge", "Partitions that a broker leads", BROKER,
              _EACH_BROKER),
    MetricRow("plimsoll_member_replicas", "gauge", "Replicas that a broker has", BROKER,
              _EACH_BROKER),
    MetricRow("plimsoll_member_fenced", "gauge",
              "1 for a member that is fenced, or stops; not while it joins, or a granted restart"
              " or a drain covers it", BROKER, _EACH_BROKER),
    MetricRow("plimsoll_metadata_backlog_records", "gauge",
              "Committed metadata records that a broker has not carried out, by its last heartbeat",
              BROKER, _EACH_BROKER),
    MetricRow("plimsoll_metadata_backlog_seconds", "gauge",
              "For how long a broker has had such a backlog", BROKER, _EACH_BROKER),
    MetricRow("plimsoll_heartbeat_age_seconds", "gauge", "Since when a broker is silent", BROKER,
              _EACH_BROKER),
)  # fmt: skip

ISR_SIZE = MetricRow(
    "plimsoll_partition_isr_size", "gauge",
    "Members of the ISR; only of clusters of at most 2,000 partitions",
    (*CLUSTER, "topic", "partition"), "1 per partition, at most 2,000 per cluster",
)  # fmt: skip
"""Of all that are shown by far the most series: `isr_sizes` writes them."""

CONTROLLER_ROWS = (
    MetricRow("plimsoll_controller_commits", "counter",
              "Batches committed to the metadata log", CLUSTER, _EACH_LED),
    MetricRow("plimsoll_controller_records", "counter",
              "Records committed to the metadata log", CLUSTER, _EACH_LED),
    MetricRow("plimsoll_controller_commit_failures", "counter",
              "Appends to the metadata log that failed, and ended a term or were refused", CLUSTER,
              _EACH_LED),
    MetricRow("plimsoll_controller_commit_seconds", "histogram",
              "How long one append to the metadata log took", CLUSTER,
              "14 buckets per cluster that is led here"),
    MetricRow("plimsoll_controller_loop_lag_seconds", "histogram", "By how much a tick ran late",
              CLUSTER, "14 buckets per cluster that is led here"),
    MetricRow("plimsoll_controller_take_overs", "counter",
              "Terms that began, also of this same process", CLUSTER, _EACH_LED),
    MetricRow("plimsoll_controller_commit_pending_seconds", "gauge",
              "For how long the append that is under way has been; 0: none is", CLUSTER,
              _EACH_LED),
    MetricRow("plimsoll_controller_queued_decisions", "gauge",
              "Decisions that are not committed yet", CLUSTER, _EACH_LED),
    MetricRow("plimsoll_controller_take_over_seconds", "gauge",
              "How long the last take-over took: reading the log, and its first commit", CLUSTER,
              _EACH_LED),
    MetricRow("plimsoll_metadata_log_slots_used", "gauge",
              "Objects of the metadata log whose batches no snapshot covers yet", CLUSTER,
              _EACH_LED),
    MetricRow("plimsoll_metadata_log_slots", "gauge", "Objects that there are for batches", CLUSTER,
              _EACH_LED),
    MetricRow("plimsoll_metadata_log_batch_bytes", "gauge",
              "Bytes of the batches that no snapshot covers yet", CLUSTER, _EACH_LED),
    MetricRow("plimsoll_metadata_log_snapshot_bytes", "gauge",
              "Bytes of the last snapshot, as stored", CLUSTER, _EACH_LED),
)  # fmt: skip

COUNTER_ROWS = (
    MetricRow("plimsoll_isr_shrinks", "counter",
              "ISRs that a broker left, by why; planned: a grant, a drain or a move covers it, or"
              " somebody asked for it through the Eviction API",
              (*BROKER, "cause", "planned"), "9 per broker"),
    MetricRow("plimsoll_isr_expands", "counter", "Replicas that joined an ISR", CLUSTER, _EACH),
    MetricRow("plimsoll_leader_elections", "counter", "Partitions that got another leader, by why",
              (*CLUSTER, "cause"), "10 per cluster"),
    MetricRow("plimsoll_unclean_elections", "counter",
              "Partitions whose new leader may lack acknowledged records", CLUSTER, _EACH),
    MetricRow("plimsoll_state_changes_requested", "counter",
              "State changes that commits requested of a broker's replicas: "
              + ", ".join(STATE_CHANGES), (*BROKER, "change"), "4 per broker"),
    MetricRow("plimsoll_fencings", "counter", "How often a broker was fenced, by why",
              (*BROKER, "reason"), "5 per broker"),
)  # fmt: skip

UNCLEAN_ROWS = (
    MetricRow("plimsoll_unclean_recovery_partitions", "gauge",
              "Unclean elections of partitions in the last day, whoever led then; loss certain:"
              " another replica told of records that the leader lacks; possible: it may lack some",
              (*CLUSTER, "loss"), "2 per cluster that is led here"),
    MetricRow("plimsoll_unclean_recovery_time_seconds", "gauge",
              "When the last of them was, as a Unix time; 0: there was none", CLUSTER, _EACH_LED),
)  # fmt: skip

ARCHIVE_ROWS = (
    MetricRow("plimsoll_history_behind_seconds", "gauge",
              "For how long something that was committed has waited for the history's archive; 0:"
              " nothing does", CLUSTER, _EACH_LED),
    MetricRow("plimsoll_history_rows_dropped", "counter",
              "Changes of which the history's archive says only that they are not known, because"
              " it could not be written for too long", CLUSTER, _EACH_LED),
)  # fmt: skip

CERTIFICATE_ROWS = (
    MetricRow("plimsoll_certificate_expiry_time_seconds", "gauge",
              "When the certificate that a listener shows ends, as a Unix time, of the broker whose"
              " ends first; own: signed by the cluster's authority; given: a user's; without"
              " listener: an authority itself, of listeners (authority), of clients"
              " (clients-authority), of the inside (internal-authority)",
              (*CLUSTER, "listener", "kind"),
              "1 per listener with TLS, and up to 3, per cluster that is led here"),
)  # fmt: skip

OBJECT_ROWS = (
    MetricRow("plimsoll_cluster_known", "gauge", "1 for every LogCluster that was seen", CLUSTER,
              _EACH),
    MetricRow("plimsoll_controller_active", "gauge", "1 where this process leads the cluster",
              CLUSTER, _EACH_LED),
    MetricRow("plimsoll_stalled", "gauge",
              "1 for an object whose condition Stalled is True, or whose spec cannot be read: a"
              " person has to act",
              ("namespace", "kind", "name", "reason"), "at most 100"),
    MetricRow("plimsoll_not_ready_objects", "gauge", "Objects whose condition Ready is False",
              ("kind",), "7"),
    MetricRow("plimsoll_verifications", "gauge",
              "Verifications that are there, by verdict (empty: none yet)",
              ("namespace", "verdict"), "4 per namespace"),
    MetricRow("plimsoll_verification_violated", "gauge",
              "1 for a Verification that is there and was Violated", ("namespace", "name"),
              "at most 100"),
    MetricRow("plimsoll_blocked_actions", "gauge", "Reasons why a voluntary action waits",
              (*BROKER, "action", "reason"), "1 per waiting action and reason"),
    MetricRow("plimsoll_blocked_action_start_time_seconds", "gauge",
              "Since when a voluntary action waits, as a Unix time", (*BROKER, "action", "reason"),
              "1 per waiting action and reason"),
)  # fmt: skip

RECONCILE_ROWS = (
    MetricRow("plimsoll_reconcile_seconds", "histogram", "How long a pass over an object took",
              ("task",), "14 buckets × 8"),
    MetricRow("plimsoll_reconcile_retries", "counter",
              "Passes that came to nothing yet, and are repeated", ("task",), "8"),
    MetricRow("plimsoll_reconcile_running_seconds", "gauge",
              "For how long the pass that has been under way longest has been", CLUSTER,
              _EACH_LED),
    MetricRow("plimsoll_reconcile_failing_seconds", "gauge",
              "For how long passes over one object have come to nothing, of the worst", CLUSTER,
              _EACH_LED),
    MetricRow("plimsoll_reconcile_waiting", "gauge", "Objects that wait for a pass", CLUSTER,
              _EACH_LED),
)  # fmt: skip

PROCESS = (
    MetricRow("plimsoll_operator_up", "gauge", "1 while this operator runs"),
    MetricRow("plimsoll_operator_handler_failures", "counter",
              "Bugs of the operator that were met, by the request or the kind of pass (Reconcile…);"
              " Look, Status, Metrics: what looks at objects, and tells of them; Leading: it cost a"
              " cluster its leader", ("request",), "20"),
    MetricRow("plimsoll_controller_peers_refused", "counter",
              "Connections to the controllers' port that were refused or ended in their handshake",
              ("reason",), "9"),
    MetricRow("plimsoll_operator_api_requests", "counter",
              "Requests to the API server, by the class of its answer (none: none came)",
              ("method", "answer"), "25"),
    MetricRow("plimsoll_operator_api_request_seconds", "histogram",
              "How long the API server took to answer; without watches", ("method",),
              "14 buckets × 5"),
)  # fmt: skip

ROWS = (
    *IMAGE_ROWS, ISR_SIZE, *COUNTER_ROWS, *UNCLEAN_ROWS, *CONTROLLER_ROWS, *ARCHIVE_ROWS,
    *CERTIFICATE_ROWS, *OBJECT_ROWS, *RECONCILE_ROWS, *PROCESS,
    *loop_rows(PREFIX), *PROCESS_ROWS,
)  # fmt: skip
TABLE = MetricTable(*ROWS)
