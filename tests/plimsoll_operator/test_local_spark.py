"""What a machine lacks before it can run a Verification is a sentence that says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_operator.local import spark


@pytest.fixture
def equipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a machine that has everything."""
    monkeypatch.setattr(spark, "MODULES", ("json",))
    for name in ("bin/java", "jars/spark-sql-kafka-0-10_2.13-4.0.0.jar"):
        path = tmp_path / name
        path.parent.mkdir()
        path.touch(0o755)
    return {"PATH": str(tmp_path / "bin"), "PLIMSOLL_SPARK_JARS": str(tmp_path / "jars")}


def test_machine_that_has_everything_runs_drivers(equipped: dict[str, str]) -> None:
    assert spark.why_no_driver(equipped) == ""


def test_wheel_alone_asks_for_pyspark(
    equipped: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "MODULES", ("json", "no_such_module"))
    assert "pip install 'plimsoll[spark]'" in spark.why_no_driver(equipped)


def test_machine_without_java_asks_for_it(equipped: dict[str, str]) -> None:
    assert "a Java runtime" in spark.why_no_driver({**equipped, "PATH": "/nowhere"})


def test_java_home_is_as_good_as_java_in_the_path(equipped: dict[str, str]) -> None:
    home = str(Path(equipped["PATH"]).parent)
    assert spark.why_no_driver({**equipped, "PATH": "/nowhere", "JAVA_HOME": home}) == ""


def test_folder_without_the_connector_is_named(equipped: dict[str, str], tmp_path: Path) -> None:
    empty = str(tmp_path / "empty")
    said = spark.why_no_driver({**equipped, "PLIMSOLL_SPARK_JARS": empty})
    assert empty in said
    assert "spark/jars.sh" in said
    assert "Java" not in said
