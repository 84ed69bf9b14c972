"""The data sources show the batches of every replica, and what is wrong with them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.local_cluster import LocalCluster
from tests.plimsoll_spark.test_audit_local import BATCHES, RECORDS, damage, flipped, leader, write

from plimsoll_spark import sources
from plimsoll_spark.batch_source import BatchSourceReader, SourceOptions, WrongOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # of `collect`, in PySpark
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


def test_options_without_cluster_are_refused() -> None:
    with pytest.raises(WrongOption, match=r"kafka\.bootstrap\.servers"):
        BatchSourceReader({"subscribe": "t"}).partitions()


def test_copies_from_memory_are_refused() -> None:
    with pytest.raises(WrongOption, match="only leaders"):
        BatchSourceReader({"replica": "all", "reads": "memory"})


def test_login_is_of_kafka_options() -> None:
    options = SourceOptions({"kafka.bootstrap.servers": "a:1", "kafka.Sasl.Mechanism": "PLAIN"})
    assert (options.bootstrap, options.login) == ("a:1", {"sasl.mechanism": "PLAIN"})
