"""Spark's classes come from their archive, which is there where the connector's jars are."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plimsoll_spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_jvm_maps_the_class_archive(spark: "SparkSession", spark_jars: Path) -> None:
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
def test_missing_archive_is_not_passed_to_jvm() -> None:
    assert not any("Archive" in option for option in session.java_options())
    archive = session.class_archive()
    archive.touch()
    assert f'"-XX:SharedArchiveFile={archive}"' in session.java_options()
