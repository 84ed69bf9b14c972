"""Parses records that Spark read from Kafka into rows of the log table.  Called by `checks`; the
layout is described in `plimsoll_spark.records`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from plimsoll_spark.records import HASH_BYTES, HEADER_BYTES, PREFIX_BYTES, PRODUCER_BYTES

LARGEST = 2_000_000_000


def parse_log(source: DataFrame, salt: bytes) -> DataFrame:
    """Convert rows of Spark's Kafka source (key, value, partition, offset, …) into the log
    table."""
    value = F.coalesce(F.col("value"), F.lit(bytearray()))
    prefix = F.substring(value, 1, PREFIX_BYTES)
    # Spark counts bytes from 1.
    stated = F.lower(F.hex(F.substring(value, PREFIX_BYTES + 1, HASH_BYTES)))
    payload = F.substring(value, HEADER_BYTES + 1, LARGEST)
    vouched = F.sha2(F.concat(F.lit(bytearray(salt)), prefix, payload), 256)
    whole = (F.octet_length(value) >= HEADER_BYTES) & (
        stated == F.substring(vouched, 1, 2 * HASH_BYTES)
    )
    sequence_bytes = F.substring(value, PRODUCER_BYTES + 1, PREFIX_BYTES - PRODUCER_BYTES)
    return source.select(
        F.col("partition"),
        F.col("offset"),
        F.col("key").cast("string").alias("key"),
        _number(F.substring(value, 1, PRODUCER_BYTES)).cast("int").alias("producer"),
        _number(sequence_bytes).cast("long").alias("sequence"),
        stated.alias("content_hash"),
        F.coalesce(whole, F.lit(False)).alias("ours"),
    )


def _number(big_endian: Column) -> Column:
    return F.conv(F.hex(big_endian), 16, 10)
