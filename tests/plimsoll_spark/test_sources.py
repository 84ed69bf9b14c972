"""The data sources show the batches of every replica, and what is wrong with them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.integration.local_cluster import LocalCluster
from tests.plimsoll_spark.tables import agreeing, write_ledger
from tests.plimsoll_spark.test_audit_local import BATCHES, RECORDS, damage, flipped, leader, write

from plimsoll_spark import evidence, sources
from plimsoll_spark.batch_source import BatchSourceReader, SourceOptions, WrongOption
from plimsoll_spark.existing_topics import AuditedPartition, ExistingTopics, Found
from plimsoll_spark.finding_source import AuditSpan, AwaySpan, FindingSourceReader
from plimsoll_spark.ledger import UNKNOWN
from plimsoll_spark.ledger_source import LedgerReader
from plimsoll_spark.replica_reader import Place
from plimsoll_spark.settings import Produce, Settings
from plimsoll_spark.topics import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_sources_show_batches_and_findings(tmp_path: Path, spark: "SparkSession") -> None:
    sources.register(spark)
    with LocalCluster(tmp_path / "data") as cluster:
        cluster.create_topic("orders", 1)
        write(cluster, "orders")
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}
        batches = spark.read.format("plimsoll.batches").options(**options)
        rows = batches.load().orderBy("baseOffset").collect()
        assert [row.baseOffset for row in rows] == [RECORDS * n for n in range(BATCHES)]
        assert {row.replica for row in rows} == {leader(cluster, "orders")}
        follower = (leader(cluster, "orders") + 1) % 3
        damage(cluster, "orders", [follower], flipped)
        copies = batches.option("replica", "all").load()
        bad = copies.where("problem is not null").collect()
        assert [(row.replica, row.baseOffset, row.lastOffset) for row in bad] == [
            (follower, 2 * RECORDS, 3 * RECORDS - 1)
        ]
        assert copies.count() == 3 * BATCHES
        (found,) = spark.read.format("plimsoll.audit").options(**options).load().collect()
        assert (found.kind, found.firstOffset, found.brokers) == (
            "unreadable",
            2 * RECORDS,
            [follower],
        )
        some = batches.option("startingOffsets", '{"orders": {"0": 10}}').option(
            "replica", "leader"
        )
        assert some.load().count() == BATCHES - 2


def test_ledger_source_shows_every_outcome(tmp_path: Path, spark: "SparkSession") -> None:
    sources.register(spark)
    sent, _ = agreeing()
    sent[3] = replace(sent[3], outcome=UNKNOWN, partition=None, offset=None)
    write_ledger(tmp_path / "ledger", sent)
    (tmp_path / "ledger" / "_producer-0-000009.parquet").write_bytes(b"not complete")
    settings = Settings(name="n", bootstrap="b", topic="orders", produce=Produce(records=20))
    kept = evidence.begun(settings, "n-1", None, {})
    (tmp_path / evidence.RUN_FILE_0_3).write_bytes(msgspec.json.encode(kept))
    rows = spark.read.format("plimsoll.ledger").load(str(tmp_path)).collect()
    assert len(rows) == 20
    assert {row.topic for row in rows} == {"orders"}
    assert [row.offset for row in rows if row.outcome == UNKNOWN] == [None]
    assert {row.settledTimestampMs - row.sendTimestampMs for row in rows} == {1.0}


def test_ledger_source_refuses_a_foreign_directory(tmp_path: Path) -> None:
    with pytest.raises(WrongOption, match="holds no ledger"):
        LedgerReader({"path": str(tmp_path)})
    with pytest.raises(WrongOption, match="path is missing"):
        LedgerReader({})


def test_options_without_cluster_are_refused() -> None:
    with pytest.raises(WrongOption, match=r"kafka\.bootstrap\.servers"):
        BatchSourceReader({"subscribe": "t"}).partitions()


def two(away: tuple[int, ...] = ()) -> list[AuditedPartition]:
    log = OffsetRange(log_start_offset=0, log_end_offset=9)
    return [
        AuditedPartition(
            topic="t",
            partition=number,
            log=log,
            replicas=(Place("t", number, 0, "h", 1),),
            in_sync=frozenset({0}),
            away=away,
        )
        for number in (0, 1)
    ]


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(ExistingTopics, "partitions", lambda self, topics: Found(two(), ()))
    monkeypatch.setattr(ExistingTopics, "compacted", lambda self, topics: {"t": False})
    return {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_json_offsets_must_name_every_partition(options: dict[str, str], option: str) -> None:
    with pytest.raises(WrongOption, match=f"{option} does not name t-1: "):
        BatchSourceReader({**options, option: '{"t": {"0": 5}}'}).partitions()
    spans = BatchSourceReader({**options, option: '{"t": {"0": 5, "1": -1}}'}).partitions()
    first = {"startingOffsets": [(0, 5, 9)], "endingOffsets": [(0, 0, 5), (1, 0, 9)]}[option]
    assert [(one.place.partition, one.first, one.end) for one in spans] == first


def test_findings_are_of_the_stated_offsets(options: dict[str, str]) -> None:
    """As record batches are."""
    options["startingOffsets"] = '{"t": {"0": 5, "1": -1}}'
    (one,) = FindingSourceReader(options).partitions()
    assert isinstance(one, AuditSpan)
    assert (one.item.partition, one.item.first, one.item.end) == (0, 5, 9)


def test_replicas_of_absent_brokers_are_unread(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else their topic seemed healthy."""
    monkeypatch.setattr(ExistingTopics, "partitions", lambda self, topics: Found(two((7, 8)), ()))
    reader = FindingSourceReader(options)
    away = [one for one in reader.partitions() if isinstance(one, AwaySpan)]
    rows = [row for one in away for row in reader.read(one)]
    assert [(row[1], row[4], row[5]) for row in rows] == [
        (partition, "unread", [broker]) for partition in (0, 1) for broker in (7, 8)
    ]


@pytest.mark.parametrize("name", ["endingTimestamp", "ASSIGN", "startingOffsetsByTimestamp"])
def test_options_that_would_be_ignored_are_refused(name: str) -> None:
    for reader in (BatchSourceReader, FindingSourceReader):
        with pytest.raises(WrongOption, match="is not supported"):
            reader({name: "1"})


def test_copies_from_memory_are_refused() -> None:
    with pytest.raises(WrongOption, match="only leaders"):
        BatchSourceReader({"replica": "all", "reads": "memory"})


def test_login_is_of_kafka_options() -> None:
    options = SourceOptions({"kafka.bootstrap.servers": "a:1", "kafka.Sasl.Mechanism": "PLAIN"})
    assert (options.bootstrap, options.login) == ("a:1", {"sasl.mechanism": "PLAIN"})
