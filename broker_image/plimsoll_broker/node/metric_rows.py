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
    _row("ready", "gauge", "Whether the broker may be counted on"),
    _row("controller_silence_seconds", "gauge",
         "For how long no controller that may decide has answered this broker"),
    _row("metadata_unknown", "gauge",
         "1 when a newer release wrote metadata that this broker cannot apply"),
    _row("metadata_offset", "gauge", "Metadata records that all partitions here have applied"),
    _row("connections", "gauge", "Open client connections"),
    _row("listener_connections", "gauge", "Open connections, by listener", ("listener",), "2"),
    _row("listener_connections_limit", "gauge", "Connections that a listener may have open",
         ("listener",), "2"),
    _row("connections_accepted", "counter", "Connections that were opened, by listener",
         ("listener",), "2"),
    _row("connections_turned_away", "counter",
         "New connections that a full listener had no room for", ("listener",), "2"),
    _row("connections_closed", "counter",
         "Connections that the broker closed, by listener and reason", ("listener", "reason"),
         "about 20 per listener"),
    _row("memory_budget_used_bytes", "gauge", "Memory that clients hold, by what for",
         ("budget",), "2"),
    _row("memory_budget_limit_bytes", "gauge", "Memory that clients may hold", ("budget",), "2"),
    _row("memory_budget_waits", "counter", "Requests and fetches that had to wait for memory",
         ("budget",), "2"),
    _row("principal_pool_held", "gauge",
         "What clients hold of each pool that principals share, in the pool's own units",
         ("pool",), "1 per pool"),
    _row("principal_pool_limit", "gauge", "What all principals together may hold of a pool",
         ("pool",), "1 per pool"),
    _row("principal_pool_largest", "gauge", "What the principal holds that holds most of a pool",
         ("pool",), "1 per pool"),
    _row("principal_pool_share", "gauge",
         "What a principal could take of a pool now that holds nothing of it", ("pool",),
         "1 per pool"),
    _row("principal_pool_principals", "gauge", "Principals that hold something of a pool",
         ("pool",), "1 per pool"),
    _row("principal_pool_refusals", "counter",
         "Admissions that a pool refused: its principal waited, was refused or was closed",
         ("pool",), "1 per pool"),
    _row("handler_failures", "counter",
         "Requests that met a bug of the broker and cost their clients the connection, by API",
         ("api",), _APIS),
    _row("request_seconds", "histogram",
         "From when a request was read until its reply was handed to the socket, waiting for"
         " records or replicas included; FETCH_FOLLOWER: brokers' fetches", ("api",),
         "14 buckets per API that was asked for"),
    _row("requests_waiting", "gauge", "Requests that cannot be answered yet", ("listener",), "2"),
    _row("request_errors", "counter",
         "Partitions of a Produce or Fetch that were answered with an error, by Kafka's word",
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
         "ISRs of partitions led here that a follower left, by why as far as a broker knows",
         ("follower", "cause", "planned"), "5 per follower, 7 after planned ones"),
    _row("isr_expands", "counter", "ISR expansions proposed by this broker"),
    _row("flush_seconds", "histogram", "How long one flush of a log took", series="14 buckets"),
    _row("truncations", "counter", "Logs that were cut to follow their leader, each time"),
    _row("truncated_records", "counter", "Offsets that were cut"),
    _row("load_seconds", "gauge", "How long loading and recovering the logs took at the start"),
    _row("room_again", "counter",
         "Replicas that went back into service when the disk had room, or the process descriptors"),
    _row("moved_bytes", "counter",
         "Bytes of replicas that were being copied to this broker, under a movement limit"),
    _row("movement_limit_bytes_per_second", "gauge",
         "How fast replicas may be copied to this broker, by whose limit it is; 0 is paused",
         ("mover",), "1, and 1 per running Reassignment or Rebalance"),
)  # fmt: skip

PARTITION_ROWS = (
    _row("partitions", "gauge", "Replicas on this broker"),
    _row("partitions_limit", "gauge",
         "Replicas that the broker has memory and descriptors for; beyond it none is made"),
    _row("offline_partitions", "gauge", "Replicas whose log is out of service"),
    _row("disk_reserve_bytes", "gauge",
         "Bytes of the disk that clients leave free for everything else; 0: not known yet"),
    _row("disk_short", "gauge",
         "1: less than the reserve is free, clients' records are refused, the largest's first"),
    _row("disk_refusals", "counter",
         "Batches of clients that were refused because the disk has little room left"),
    _row("full_disk_partitions", "gauge",
         "Replicas whose log is out of service until the disk, which is full, has room again"),
    _row("leaderless_partitions", "gauge",
         "Replicas on this broker whose partition has no leader, or one that does not answer it"),
    _row("moving_partitions", "gauge", "Replicas that are being copied to this broker"),
    _row("leaders", "gauge", "Partitions led by this broker"),
    _row("under_replicated_partitions", "gauge",
         "Partitions led by this broker whose ISR lacks a replica"),
    _row("under_min_isr_partitions", "gauge",
         "Partitions led by this broker of which fewer replicas keep up than min ISR"),
    _row("reduced_to_min_isr_partitions", "gauge",
         "Partitions led by this broker of which just min ISR replicas keep up, and others do not"),
    _row("isr_size_partitions", "gauge",
         "Partitions led by this broker, by the size of their ISR", ("size",),
         "1 per size, at most the highest replication factor"),
    _row("follower_lag_records", "gauge",
         "By how many records a follower is behind the ends of this broker's leaders, at most",
         ("follower",), "1 per follower"),
    _row("follower_lag_seconds", "gauge",
         "For how long a follower has not had everything of a partition led here, at most",
         ("follower",), "1 per follower"),
    _row("log_size_bytes", "gauge", "Bytes of all logs here"),
    _row("log_records", "gauge", "Offsets from the starts of all logs here to their ends"),
    _row("log_segments", "gauge", "Segments of all logs here"),
    _row("log_files_open", "gauge", "Files of logs that are open"),
    _row("log_files_open_limit", "gauge",
         "How many files of logs may be open: half of the process's descriptors"),
    _row("log_files_closed_for_others", "counter",
         "Files of logs that were closed because others had to be opened"),
    _row("disk_free_bytes", "gauge", "Bytes that the broker may still write to its volume"),
    _row("disk_size_bytes", "gauge", "Size of its volume"),
)  # fmt: skip

STATE_CHANGE_ROWS = (
    _row("state_changes_received", "counter",
         "State changes that metadata asked of replicas here: " + ", ".join(STATE_CHANGES),
         ("change",), "4"),
    _row("state_changes_completed", "counter", "State changes that replicas here carried out",
         ("change",), "4"),
    _row("state_changes_pending", "gauge",
         "State changes that were received and are not carried out yet"),
    _row("state_changes_pending_seconds", "gauge",
         "For how long the oldest of them has been pending; 0: none is"),
)  # fmt: skip

TOPIC_ROWS = (
    _row("topic_bytes_in", "counter", "Bytes appended by producers to what is led here",
         ("topic",), "1 per topic here, at most metric.topic.series.max"),
    _row("topic_records_in", "counter", "Records appended by producers to what is led here",
         ("topic",), "as above"),
    _row("topic_bytes_out", "counter", "Bytes sent to consumers of what is led here", ("topic",),
         "as above"),
    _row("topic_log_size_bytes", "gauge", "Bytes of a topic's logs here", ("topic",), "as above"),
    _row("topic_series_left_out", "gauge", "Topics here of which nothing is shown"),
)  # fmt: skip

CLEANER_ROWS = (
    _row("cleaner_read_bytes", "counter",
         "Bytes of compacted logs' segments that the cleaner looked through"),
    _row("cleaner_written_bytes", "counter", "Bytes of what is left of them"),
    _row("cleaner_rounds", "counter", "Logs that were cleaned, each time"),
    _row("cleaner_failures", "counter", "Rounds that failed, and left their log as it was"),
    _row("cleaner_seconds", "counter", "How long all rounds took"),
    _row("cleaner_due_logs", "gauge",
         "Logs that are to be cleaned, as of the cleaner's last look"),
    _row("cleaner_due_bytes", "gauge", "Bytes of these logs that were never cleaned"),
    _row("cleaner_max_dirty_ratio", "gauge",
         "The greatest part of one of these logs that was never cleaned"),
    _row("cleaner_uncleanable_logs", "gauge",
         "Logs that are not cleaned any more, because a segment is damaged"),
    _row("cleaner_in_brokers_share", "gauge",
         "1: cleaning takes the broker's processor time, since its session gets no priority"),
)  # fmt: skip

GROUP_ROWS = (
    _row("groups", "gauge", "Groups that are coordinated here, by state, as of the last look",
         ("state",), "5"),
    _row("group_members", "gauge", "Members of these groups, and who was given an id"),
    _row("committed_offsets", "gauge", "Offsets that these groups have committed"),
    _row("group_rebalances", "counter", "Rebalances of groups that began here"),
    _row("offset_commits", "counter", "Offsets that groups have committed here"),
    _row("offset_commit_failures", "counter",
         "Offsets that a group could not commit here, by Kafka's word for the code", ("code",),
         "1 per code met, 6 from the start"),
    _row("group_loads", "counter", "Partitions of __consumer_offsets that were loaded"),
    _row("group_load_seconds", "counter",
         "How long their groups had to wait for that, added up"),
    _row("group_loading_seconds", "gauge",
         "For how long groups have been waiting for a load that has not ended"),
    _row("group_memory_bytes", "gauge", "Memory that these groups take, as it is counted"),
    _row("group_memory_limit_bytes", "gauge", "Memory that all groups of this broker may take"),
    _row("group_memory_refusals", "counter",
         "Commits, joins and assignments that were refused, since the groups of a principal had"
         " their share of it"),
    _row("groups_unloaded", "gauge",
         "Groups whose clients are refused, since there was no room to load them"),
    _row("group_lag_series_left_out", "gauge",
         "Groups' topics whose lag is not shown (group.lag.series.max)"),
    _row("group_lag_partitions_left_out", "gauge",
         "Committed offsets that count in no lag, because the end of the log is not known"),
)  # fmt: skip

_LAG = ("group", "topic")
_LAG_SERIES = "1 per group and topic, at most group.lag.series.max per broker (1,000)"
SECURITY_ROWS = (
    _row("logins", "counter", "Logins that succeeded"),
    _row("logins_failed", "counter", "Logins that failed"),
    _row("tokens_refused", "counter", "Tokens that let nobody in",
         ("reason",), "1 per reason, at most 11"),
    _row("client_certificates_refused", "counter",
         "Certificates with a good chain that let nobody in", ("reason",),
         "1 per reason, at most 7"),
    _row("sessions_cut_off", "counter", "Connections whose login was not good any more"),
    _row("authorizations_denied", "counter", "Requests, by resource, that no rule allowed"),
    _row("authorizations_would_deny", "counter", "What Enforce would refuse, and Audit did"),
    _row("audit_events_dropped", "counter",
         "Events that the audit log has no line of, since it has many of the same decision",
         ("decision",), "7"),
    _row("inside_plaintext_connections", "gauge",
         "Connections to brokers and controllers, of both directions, that are not encrypted"),
    _row("inside_peers_refused", "counter",
         "Brokers and controllers that were not believed, or could not be reached with TLS",
         ("reason",), "1 per reason, at most 6"),
)  # fmt: skip

QUOTA_ROWS = (
    _row("throttle_seconds", "histogram",
         "For how long a client is not read because it used too much, by quota; each time",
         ("quota",), "4, each 14 buckets"),
    _row("quota_accounts", "gauge",
         "Users, client ids and pairs of both whose use is counted, of all quotas together"),
    _row("connected_addresses", "gauge", "Addresses (of IPv6: /64) with open connections"),
    _row("long_work_seconds", "counter",
         "Processor time that clients used in threads, by user, or address without a login; of the"
         " 20 that used most, all others together under an empty name", ("principal",), "21"),
    _row("long_work_running", "gauge", "Threads that work for clients"),
    _row("long_work_waiting", "gauge", "Pieces of clients' work that wait for a thread"),
    _row("long_work_wait_seconds", "counter",
         "For how long pieces of clients' work waited for a thread, added up"),
    _row("long_work_refused", "counter",
         "Pieces of work that cost their connections, because too much of their principal waited"),
    _row("long_work_dropped", "counter",
         "Pieces of work whose clients left before a thread was theirs"),
)  # fmt: skip

LAG_ROWS = (
    MetricRow("plimsoll_group_lag_records", "gauge",
              "Offsets between what a group has committed for a topic and where its logs end", _LAG,
              _LAG_SERIES),
    MetricRow("plimsoll_group_lag_seconds", "gauge",
              "For how long, at least, the oldest record of a topic that a group has not read is"
              " there", _LAG, _LAG_SERIES),
    MetricRow("plimsoll_group_committed_position", "gauge",
              "The offsets that a group has committed for a topic, added up: grows while it reads",
              _LAG, _LAG_SERIES),
    MetricRow("plimsoll_group_stuck_seconds", "gauge",
              "For how long, at least, a partition with unread records has stood, the longest of a"
              " topic", _LAG, _LAG_SERIES),
)  # fmt: skip
"""Written as text by `coordinator.lag_text`."""

ROWS = (
    *SERVING_ROWS, *TRAFFIC_ROWS, *PARTITION_ROWS, *STATE_CHANGE_ROWS, *TOPIC_ROWS, *CLEANER_ROWS,
    *GROUP_ROWS, *LAG_ROWS, *SECURITY_ROWS, *QUOTA_ROWS, *loop_rows(PREFIX), *PROCESS_ROWS,
)  # fmt: skip
TABLE = MetricTable(*ROWS)
