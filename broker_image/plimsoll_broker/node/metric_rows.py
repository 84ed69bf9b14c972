"""Every metric of a broker, stated once; docs/observability.md is made of these rows.

The labels `namespace`, `cluster` and `broker` are the scrape's to add.
"""

from __future__ import annotations

from plimsoll_core.cluster.state_changes import KINDS as STATE_CHANGES
from plimsoll_process.metric_table import PROCESS_ROWS, Kind, MetricRow, MetricTable, loop_rows

PREFIX = "plimsoll_broker_"
_APIS = "1 per API served, at most 45"


def _row(
    name: str, kind: Kind, text: str, labels: tuple[str, ...] = (), series: str = "1"
) -> MetricRow:
    return MetricRow(PREFIX + name, kind, text, labels, series)


SERVING_ROWS = (
    _row("ready", "gauge", "1 if the broker is ready"),
    _row("controller_silence_seconds", "gauge", "Time since an active controller last answered"),
    _row("metadata_unknown", "gauge", "1 if the broker cannot apply metadata of a newer release"),
    _row("metadata_offset", "gauge", "Metadata offset that all partitions here have applied"),
    _row("connections", "gauge", "Open client connections"),
    _row("listener_connections", "gauge", "Open connections", ("listener",), "2"),
    _row("listener_connections_limit", "gauge",
         "Connections that the listener may have open", ("listener",), "2"),
    _row("connections_accepted", "counter", "Accepted connections", ("listener",), "2"),
    _row("connections_turned_away", "counter",
         "New connections rejected by a full listener", ("listener",), "2"),
    _row("connections_closed", "counter",
         "Connections closed by the broker", ("listener", "reason"), "about 20 per listener"),
    _row("memory_budget_used_bytes", "gauge",
         "Memory held by clients, by purpose", ("budget",), "2"),
    _row("memory_budget_limit_bytes", "gauge", "Memory that clients may hold", ("budget",), "2"),
    _row("memory_budget_waits", "counter",
         "Requests and fetches that waited for memory", ("budget",), "2"),
    _row("principal_pool_held", "gauge",
         "Amount held by all principals in a shared pool, in the pool's units",
         ("pool",), "1 per pool"),
    _row("principal_pool_limit", "gauge",
         "Size of a shared pool, for all principals", ("pool",), "1 per pool"),
    _row("principal_pool_largest", "gauge",
         "Amount held by the largest principal in a shared pool", ("pool",), "1 per pool"),
    _row("principal_pool_share", "gauge",
         "Amount of a shared pool available to a principal that holds nothing",
         ("pool",), "1 per pool"),
    _row("principal_pool_principals", "gauge",
         "Principals that hold a part of a shared pool", ("pool",), "1 per pool"),
    _row("principal_pool_refusals", "counter",
         "Admissions refused by a shared pool: the principal waited, was refused or its connection "
         "was closed", ("pool",),
         "1 per pool"),
    _row("handler_failures", "counter",
         "Requests that failed by a bug of the broker, which closed their connection",
         ("api",), _APIS),
    _row("request_seconds", "histogram",
         "Time from reading a request to handing its reply to the socket, waits included;"
         " FETCH_FOLLOWER: brokers' fetches", ("api",), "14 buckets per API that was asked for"),
    _row("requests_waiting", "gauge", "Requests that wait to be answered", ("listener",), "2"),
    _row("request_errors", "counter",
         "Partitions in Produce and Fetch that were answered with an error, by Kafka's code",
         ("api", "code"), "1 per code met, 12 from the start"),
)  # fmt: skip

TRAFFIC_ROWS = (
    _row("bytes_in", "counter", "Bytes appended by producers"),
    _row("records_in", "counter", "Records appended by producers"),
    _row("bytes_out", "counter", "Bytes sent to consumers"),
    _row("replication_bytes_in", "counter", "Bytes appended from leaders"),
    _row("replication_bytes_out", "counter", "Bytes sent to followers"),
    _row("unleased_refusals", "counter",
         "Reads and acks=0/1 refused because another broker may lead (onControllerLoss)"),
    _row("isr_shrinks", "counter",
         "Followers that left an ISR led here, by cause if known",
         ("follower", "cause", "planned"), "5 per follower, 7 after planned ones"),
    _row("isr_expands", "counter", "ISR expansions proposed by this broker"),
    _row("flush_seconds", "histogram", "Duration of a flush of a log", series="14 buckets"),
    _row("truncations", "counter", "Truncations of logs"),
    _row("truncated_records", "counter", "Truncated offsets"),
    _row("load_seconds", "gauge", "Duration of loading and recovering the logs at the start"),
    _row("room_again", "counter",
         "Replicas online again after a full disk or a lack of file descriptors"),
    _row("moved_bytes", "counter", "Bytes copied to this broker under a movement limit"),
    _row("movement_limit_bytes_per_second", "gauge",
         "Limit of copying to this broker, by mover; 0: paused", ("mover",),
         "1, and 1 per running Reassignment or Rebalance"),
)  # fmt: skip

PARTITION_ROWS = (
    _row("partitions", "gauge", "Replicas on this broker"),
    _row("partitions_limit", "gauge", "Replicas for which the broker has memory and descriptors"),
    _row("offline_partitions", "gauge", "Replicas with an offline log"),
    _row("disk_reserve_bytes", "gauge",
         "Bytes of the disk that clients must leave free; 0: unknown yet"),
    _row("disk_short", "gauge",
         "1 if less than the reserve is free: clients' records are refused, the largest holder's"
         " first"),
    _row("disk_refusals", "counter", "Batches of clients refused for lack of disk space"),
    _row("full_disk_partitions", "gauge", "Replicas offline until the full disk has room"),
    _row("leaderless_partitions", "gauge",
         "Replicas here of partitions without a responsive leader"),
    _row("moving_partitions", "gauge", "Replicas being copied to this broker"),
    _row("leaders", "gauge", "Partitions led by this broker"),
    _row("under_replicated_partitions", "gauge",
         "Partitions led here with a replica missing from the ISR"),
    _row("under_min_isr_partitions", "gauge",
         "Partitions led here with fewer caught-up replicas than min ISR"),
    _row("reduced_to_min_isr_partitions", "gauge",
         "Partitions led here with exactly min ISR caught-up replicas, and others behind"),
    _row("isr_size_partitions", "gauge",
         "Partitions led here, by size of the ISR", ("size",),
         "1 per size, at most the highest replication factor"),
    _row("follower_lag_records", "gauge",
         "Largest lag of a follower behind leaders here, in records", ("follower",),
         "1 per follower"),
    _row("follower_lag_seconds", "gauge",
         "Longest time for which a follower has not caught up with a leader here", ("follower",),
         "1 per follower"),
    _row("log_size_bytes", "gauge", "Bytes of all logs here"),
    _row("log_records", "gauge", "Offsets between the start and end of all logs here"),
    _row("log_segments", "gauge", "Segments of all logs here"),
    _row("log_files_open", "gauge", "Open log files"),
    _row("log_files_open_limit", "gauge",
         "Log files that may be open: half of the process's descriptors"),
    _row("log_files_closed_for_others", "counter", "Log files closed to open others"),
    _row("disk_free_bytes", "gauge", "Bytes that the broker may still write to its volume"),
    _row("disk_size_bytes", "gauge", "Size of the volume"),
)  # fmt: skip

STATE_CHANGE_ROWS = (
    _row("state_changes_received", "counter",
         "State changes that metadata asked of replicas here: " + ", ".join(STATE_CHANGES),
         ("change",), "4"),
    _row("state_changes_completed", "counter", "State changes completed", ("change",), "4"),
    _row("state_changes_pending", "gauge", "State changes received and not completed"),
    _row("state_changes_pending_seconds", "gauge",
         "Age of the oldest state change that is not completed; 0: none"),
)  # fmt: skip

TOPIC_ROWS = (
    _row("topic_bytes_in", "counter",
         "Bytes appended by producers to partitions led here", ("topic",),
         "1 per topic here, at most metric.topic.series.max"),
    _row("topic_records_in", "counter",
         "Records appended by producers to partitions led here", ("topic",), "as above"),
    _row("topic_bytes_out", "counter",
         "Bytes sent to consumers from partitions led here", ("topic",), "as above"),
    _row("topic_log_size_bytes", "gauge", "Bytes of a topic's logs here", ("topic",), "as above"),
    _row("topic_series_left_out", "gauge", "Topics here without metrics by topic"),
)  # fmt: skip

CLEANER_ROWS = (
    _row("cleaner_read_bytes", "counter", "Bytes of segments that the cleaner read"),
    _row("cleaner_written_bytes", "counter", "Bytes of segments that the cleaner kept"),
    _row("cleaner_rounds", "counter", "Logs cleaned"),
    _row("cleaner_failures", "counter", "Failed cleanings; their logs are unchanged"),
    _row("cleaner_seconds", "counter", "Total duration of all cleanings"),
    _row("cleaner_due_logs", "gauge", "Logs due for cleaning at the last check"),
    _row("cleaner_due_bytes", "gauge", "Uncleaned bytes of logs due for cleaning"),
    _row("cleaner_max_dirty_ratio", "gauge", "Largest uncleaned share of a log due for cleaning"),
    _row("cleaner_uncleanable_logs", "gauge",
         "Logs with a damaged segment, not cleaned until a restart"),
    _row("cleaner_in_brokers_share", "gauge",
         "1 if cleaning uses the broker's processor share, because its priority cannot be lowered"),
)  # fmt: skip

GROUP_ROWS = (
    _row("groups", "gauge", "Groups coordinated here, by state", ("state",), "5"),
    _row("group_members", "gauge", "Members of groups coordinated here, and reserved member ids"),
    _row("committed_offsets", "gauge", "Committed offsets of groups coordinated here"),
    _row("group_rebalances", "counter", "Rebalances started here"),
    _row("offset_commits", "counter", "Offsets committed here"),
    _row("offset_commit_failures", "counter",
         "Offsets that failed to commit, by Kafka's code", ("code",),
         "1 per code met, 6 from the start"),
    _row("group_loads", "counter", "Loaded partitions of __consumer_offsets"),
    _row("group_load_seconds", "counter", "Total duration of loading partitions"),
    _row("group_loading_seconds", "gauge", "Age of the longest running load; 0: none"),
    _row("group_memory_bytes", "gauge", "Memory of groups coordinated here"),
    _row("group_memory_limit_bytes", "gauge", "Memory limit of all groups of this broker"),
    _row("group_rate_refusals", "counter",
         "Commits and joins refused because a principal's groups write too many bytes"),
    _row("group_memory_refusals", "counter",
         "Commits, joins and assignments refused because a principal's groups exceed their share"),
    _row("groups_unloaded", "gauge",
         "Groups not loaded for lack of memory; their clients are refused"),
    _row("group_lag_series_left_out", "gauge",
         "Topics of groups without shown lag (group.lag.series.max)"),
    _row("group_lag_partitions_left_out", "gauge",
         "Committed offsets without lag, because the log end is unknown"),
)  # fmt: skip

_LAG = ("group", "topic")
_LAG_SERIES = "at most group.lag.series.max"
SECURITY_ROWS = (
    _row("logins", "counter", "Successful logins"),
    _row("logins_failed", "counter", "Failed logins"),
    _row("tokens_refused", "counter", "Refused tokens", ("reason",), "1 per reason, at most 11"),
    _row("client_certificates_refused", "counter",
         "Refused client certificates with a valid chain", ("reason",), "1 per reason, at most 7"),
    _row("sessions_cut_off", "counter", "Connections closed because their login became invalid"),
    _row("authorizations_denied", "counter", "Denied requests, by resource"),
    _row("authorizations_would_deny", "counter",
         "Requests that Audit allowed and Enforce would deny"),
    _row("audit_events_dropped", "counter",
         "Audit events without a log line, because too many had this decision",
         ("decision",), "7"),
    _row("inside_plaintext_connections", "gauge",
         "Plaintext connections with brokers and controllers, both directions"),
    _row("inside_peers_refused", "counter",
         "Brokers and controllers refused, or not reachable with TLS", ("reason",),
         "1 per reason, at most 6"),
)  # fmt: skip

QUOTA_ROWS = (
    _row("throttle_seconds", "histogram",
         "Duration of each throttling of a client", ("quota",), "4, each 14 buckets"),
    _row("quota_accounts", "gauge", "Users, client ids and pairs with counted use"),
    _row("connected_addresses", "gauge", "Addresses (IPv6: /64) with open connections"),
    _row("long_work_seconds", "counter",
         "Processor time of clients in threads, of the 20 heaviest principals; all others under"
         " an empty name", ("principal",), "21"),
    _row("long_work_running", "gauge", "Threads that work for clients"),
    _row("long_work_waiting", "gauge", "Clients' work that waits for a thread"),
    _row("long_work_wait_seconds", "counter", "Total time for which clients' work waited"),
    _row("long_work_rest_seconds", "counter",
         "Total time for which principals' work was paused after waiting for a processor"),
    _row("long_work_refused", "counter",
         "Work refused because too much of its principal waited; the connection was closed"),
    _row("long_work_dropped", "counter", "Work dropped because its client left"),
)  # fmt: skip

LAG_ROWS = (
    MetricRow("plimsoll_group_lag_records", "gauge",
              "Lag: offsets from a group's committed ones to the log ends", _LAG, _LAG_SERIES),
    MetricRow("plimsoll_group_lag_seconds", "gauge",
              "Minimum age of the oldest unread record", _LAG, _LAG_SERIES),
    MetricRow("plimsoll_group_committed_position", "gauge",
              "Sum of a group's committed offsets", _LAG, _LAG_SERIES),
    MetricRow("plimsoll_group_stuck_seconds", "gauge",
              "Minimum time without progress of a partition with unread records, the longest"
              " per topic", _LAG, _LAG_SERIES),
)  # fmt: skip
"""Written as text by `coordinator.group_measures`."""

ROWS = (
    *SERVING_ROWS, *TRAFFIC_ROWS, *PARTITION_ROWS, *STATE_CHANGE_ROWS, *TOPIC_ROWS, *CLEANER_ROWS,
    *GROUP_ROWS, *LAG_ROWS, *SECURITY_ROWS, *QUOTA_ROWS, *loop_rows(PREFIX), *PROCESS_ROWS,
)  # fmt: skip
TABLE = MetricTable(*ROWS)
