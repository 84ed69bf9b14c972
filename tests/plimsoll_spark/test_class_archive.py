"""Spark's classes come from their archive, which is there where the connector's jars are."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plimsoll_spark import session
from plimsoll_spark.settings import Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_jvm_of_a_session_maps_the_archive_of_its_classes(
    spark: "SparkSession", spark_jars: Path
) -> None:
    archive = session.class_archive()
    assert archive.parent == spark_jars.parent
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert str(archive) in maps


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector is there, as far as anybody looks, and no archive beside it."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / session.CONNECTOR.replace("*", "1")).touch()
    monkeypatch.setenv(session.JARS_VARIABLE, str(tmp_path / "jars"))


@pytest.mark.usefixtures("jars")
def test_archive_that_is_not_there_is_not_named_to_the_jvm() -> None:
    assert not any("Archive" in option for option in session.java_options())
    archive = session.class_archive()
    archive.touch()
    assert f'"-XX:SharedArchiveFile={archive}"' in session.java_options()


def test_code_is_generated_and_plans_are_adapted_for_many_records_alone() -> None:
    few = session.sql_options(Produce(records=22_500))
    assert few["spark.sql.codegen.factoryMode"] == "NO_CODEGEN"
    assert few["spark.sql.adaptive.enabled"] == "false"
    assert session.sql_options(Produce(records=300_000)) == {}
    assert session.sql_options(None) == {}


@pytest.mark.usefixtures("jars")
def test_optimising_compiler_of_the_jvm_is_left_out_of_short_jobs_alone() -> None:
    assert "-XX:TieredStopAtLevel=1" in session.java_options(Produce(records=2**20).data_bytes)
    long = Produce(records=2**22, record_bytes=1024)
    assert not any("Tiered" in option for option in session.java_options(long.data_bytes))
