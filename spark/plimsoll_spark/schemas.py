"""The two tables of a verification: the sent records (ledger) and the read ones (log).

Used by drive, verify and tests. Columns only.
"""

from __future__ import annotations

from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

ACKED = "acked"
FAILED = "failed"  # certainly not appended
UNKNOWN = "unknown"  # may or may not have been appended

LEDGER = StructType(
    [
        StructField("key", StringType(), False),
        StructField("producer", IntegerType(), False),
        StructField("sequence", LongType(), False),
        StructField("content_hash", StringType(), False),
        StructField("outcome", StringType(), False),
        StructField("partition", IntegerType(), True),
        StructField("offset", LongType(), True),
        StructField("send_ms", DoubleType(), False),
        StructField("settled_ms", DoubleType(), False),  # when the outcome became known
    ]
)

LOG = StructType(
    [
        StructField("partition", IntegerType(), False),
        StructField("offset", LongType(), False),
        StructField("key", StringType(), True),
        StructField("producer", IntegerType(), True),
        StructField("sequence", LongType(), True),
        StructField("content_hash", StringType(), True),
        StructField("ours", BooleanType(), False),  # this run wrote it, and it is whole
    ]
)

# Offsets of one partition: the log's first, and the one after its last.
RANGES = StructType(
    [
        StructField("partition", IntegerType(), False),
        StructField("log_start_offset", LongType(), False),
        StructField("log_end_offset", LongType(), False),
    ]
)
