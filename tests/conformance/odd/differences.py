"""Which odd requests are answered otherwise than by Kafka, as docs/compatibility.md states it.

By the request, the value that is odd, and what it is, each a regular expression.  What differs and
is not here is a fault, and so is what is here and does not differ any more.
"""

from __future__ import annotations

import re
from typing import NamedTuple

OF_KAFKA = "Kafka's own: "


class Difference(NamedTuple):
    """`why`: words of the document that state it, or begin with OF_KAFKA."""

    what: str
    where: str
    to: str
    why: str

    def covers(self, name: str) -> bool:
        """`name` of an odd request."""
        parts = name.split("|", 2)
        patterns = (self.what, self.where, self.to)
        return all(
            re.fullmatch(pattern, part) for pattern, part in zip(patterns, parts, strict=True)
        )


_ANY = ".*"
_TOO_LONG = "'x{30,}.*"
_TWICE = "'twice'"
_NAMED_TWICE = "A partition, topic or group that a request names twice"
_NO_LIST = "Null where the protocol has no null"
_EMPTY = "A topic without partitions"
_TWO_FAULTS = "wrong in more than one way"
_WHOLE = "One part of a request that is wrong"
_GROUP_ID = "A group's id has 255 bytes at most"
_TIMEOUT = "A timeout of 0 or less"
_NO_TRANSACTIONS = "There are no transactions"
_BOUNDS = "A topic may have 10,000 partitions"
_WORDS_OF_RIGHTS = "Numbers of rights"
_KAFKAS = f"{OF_KAFKA}it answers -1 for all, without a reason"
_MORE_TOPICS = f"{OF_KAFKA}it has __transaction_state, too"

DIFFERENCES = (
    # Produce
    Difference("PRODUCE .*", r"\.acks", _ANY, _TWO_FAULTS),
    Difference(
        "PRODUCE .*", r"(\.topic_data|.*partition_data|\.topic_data.*records)", "None", _NO_LIST
    ),
    Difference("PRODUCE .*", r"\.topic_data(\[0\]\.partition_data)?", _TWICE, _NAMED_TWICE),
    Difference("PRODUCE .*", r".*partition_data", r"\[\]", _EMPTY),
    Difference("batches", "(a|bytes)", "(a byte|bytes) behind", "have bytes behind the batch"),
    Difference("batches", "attributes", "attributes (1|2|4)", "whose records do not open"),
    Difference("batches", "attributes", "attributes (8|64)", "its time or a deletion horizon"),
    Difference("batches", "attributes", "attributes 16", "A transactional batch"),
    # Fetch and what tells of logs
    Difference("FETCH .*", r"\.replica_(id|state\.replica_id)", r"\d+", "names a replica"),
    Difference("FETCH .*", r".*max_bytes", r"-\d+", "A negative `max_bytes`"),
    Difference("FETCH .*", r"\.max_bytes", r"\d{3,}", "Each partition of a fetch"),
    Difference("(FETCH|LIST_OFFSETS) .*", r"\.isolation_level", _ANY, "isolation level"),
    Difference("FETCH .*", r"\.session_id", r"-?21\d{8}", _KAFKAS),
    Difference("FETCH .*", r"\.session_epoch", "0", "fetch sessions"),
    Difference("FETCH .*", r"\.topics|.*partitions|\.forgotten.*", "None", _NO_LIST),
    Difference("FETCH .*", r"\.topics(\[0\]\.partitions)?", _TWICE, _NAMED_TWICE),
    Difference("FETCH .*", r".*partitions", r"\[\]", _EMPTY),
    Difference("(LIST_OFFSETS|DELETE_RECORDS) .*", r"\.topics.*", _TWICE, _NAMED_TWICE),
    Difference("OFFSET_FOR_LEADER_EPOCH .*", r".*\.leader_epoch", r"-\d+", "OffsetForLeaderEpoch"),
    # Transactions
    Difference("INIT_PRODUCER_ID .*", _ANY, _ANY, _NO_TRANSACTIONS),
    Difference("FIND_COORDINATOR v4 of transactions", _ANY, _ANY, _NO_TRANSACTIONS),
    Difference("FIND_COORDINATOR .*", r"\.key_type", "1", _NO_TRANSACTIONS),
    # The cluster and its topics
    Difference("METADATA .*", r"\.topics\[0\]\.name", "None", _WHOLE),
    Difference("METADATA v12 by id", "", "v1[01]", _WHOLE),
    Difference("DESCRIBE_TOPIC_PARTITIONS .*", r".*name", "''", _KAFKAS),
    Difference("DESCRIBE_TOPIC_PARTITIONS .*", ".*limit", _ANY, _MORE_TOPICS),
    Difference("CREATE_TOPICS .*", ".*num_partitions", r"\d+", _BOUNDS),
    Difference("CREATE_PARTITIONS .*", ".*count", r"\d+", _BOUNDS),
    Difference("CREATE_PARTITIONS .*", r".*\.name", _ANY, "An illegal name of a topic"),
    Difference("(CREATE|DELETE)_(TOPICS|PARTITIONS) .*", r"\.timeout", _ANY, _TIMEOUT),
    Difference("(ELECT_LEADERS|ALTER_PARTITION_.*) .*", r"\.timeout", _ANY, _TIMEOUT),
    Difference("(ELECT_LEADERS|ALTER_PARTITION_.*) .*", r"\.topic.*", _TWICE, _NAMED_TWICE),
    Difference("(ELECT_LEADERS|ALTER_PARTITION_.*) .*", r".*\.partitions", r"\[\]", _EMPTY),
    Difference("ELECT_LEADERS .*", r"\.topic_partitions", "None", _EMPTY),
    Difference("DESCRIBE_CONFIGS .*", r"\.resources", _TWICE, _NAMED_TWICE),
    Difference("DESCRIBE_CONFIGS .*", r".*resource_type", _ANY, _WHOLE),
    Difference(".*ALTER_CONFIGS .*", r"\.resources", _TWICE, _NAMED_TWICE),
    Difference(".*ALTER_CONFIGS .* of topics", r".*resource_name", "''", "An illegal name"),
    Difference("ALTER_CONFIGS .* of a broker", r".*resource_name", "''", "Taking away what was"),
    Difference("LIST_CONFIG_RESOURCES .*", _ANY, r"\[\]", "Loggers of brokers"),
    # Groups
    Difference(
        ".*", r".*(group_id|key|groups?_names\[0\]|keys\[0\]|groups\[0\])", _TOO_LONG, _GROUP_ID
    ),
    Difference("JOIN_GROUP .*", r"\.protocol(_type|s)", r"(''|\[\])", _TWO_FAULTS),
    Difference("JOIN_GROUP .*", r"\.group_instance_id", "''", "An empty `group.instance.id`"),
    Difference("OFFSET_COMMIT .*", r"\.generation_.*", r"\d+", _TWO_FAULTS),
    Difference("OFFSET_(COMMIT|FETCH|DELETE) .*", r"\.(topics|groups)", _TWICE, _NAMED_TWICE),
    Difference("DESCRIBE_GROUPS .*", r"\.groups", _TWICE, _NAMED_TWICE),
    Difference("LIST_GROUPS .*", "", _ANY, _GROUP_ID),
    Difference("DELETE_GROUPS .*", r"\.groups_names\[0\]", _ANY, "last offset is deleted"),
    # Rights, quotas, credentials
    Difference(
        "(DESCRIBE|CREATE|DELETE)_ACLS .*", r".*(type|operation|filter)", r"-?\d+", _WORDS_OF_RIGHTS
    ),
    Difference("CREATE_ACLS .*", r".*(host|resource_name)", f"(''|{_TOO_LONG})", "Names in rules"),
    Difference("DELETE_ACLS .*", r".*resource_name_filter", "None", "Names in rules"),
    Difference("ALTER_CLIENT_QUOTAS .*", r"\.entries.*", _TWICE, _NAMED_TWICE),
    Difference("ALTER_CLIENT_QUOTAS .*", r".*entity_name", _TOO_LONG, "A user's name"),
    Difference("ALTER_CLIENT_QUOTAS .*", r".*value", "nan", "A quota is a number"),
    Difference("ALTER_USER_SCRAM_CREDENTIALS .*", r"\.deletions", _TWICE, _NAMED_TWICE),
)
