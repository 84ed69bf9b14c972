"""What a machine lacks before it can run a Verification is a sentence that says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_operator.local import driver_pods

TOP = Path(__file__).parents[2]


@pytest.fixture
def equipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a machine that has everything."""
    monkeypatch.setattr(driver_pods, "MODULES", ("json",))
    for name in ("bin/java", "jars/spark-sql-kafka-0-10_2.13-4.0.0.jar"):
        path = tmp_path / name
        path.parent.mkdir()
        path.touch(0o755)
    return {"PATH": str(tmp_path / "bin"), "PLIMSOLL_SPARK_JARS": str(tmp_path / "jars")}


def test_machine_that_has_everything_runs_drivers(equipped: dict[str, str]) -> None:
    assert driver_pods.why_no_driver(equipped) == ""


def test_wheel_alone_asks_for_pyspark(
    equipped: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_pods, "MODULES", ("json", "no_such_module"))
    assert "pip install 'plimsoll[spark]'" in driver_pods.why_no_driver(equipped)


def test_machine_without_java_asks_for_it(equipped: dict[str, str]) -> None:
    assert "a Java runtime" in driver_pods.why_no_driver({**equipped, "PATH": "/nowhere"})


def test_java_home_suffices_without_java_in_path(equipped: dict[str, str]) -> None:
    home = str(Path(equipped["PATH"]).parent)
    assert driver_pods.why_no_driver({**equipped, "PATH": "/nowhere", "JAVA_HOME": home}) == ""


def test_folder_without_the_connector_is_named(equipped: dict[str, str], tmp_path: Path) -> None:
    empty = str(tmp_path / "empty")
    said = driver_pods.why_no_driver({**equipped, "PLIMSOLL_SPARK_JARS": empty})
    assert empty in said
    assert "`plimsoll spark-jars` downloads it" in said
    assert "Java" not in said


def test_jars_of_working_tree_are_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert driver_pods.jars_directory({}) == TOP / ".cache" / "spark-jars"


def test_jars_of_wheel_are_in_user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver_pods, "working_tree", lambda: None)
    found = driver_pods.jars_directory({"HOME": "/home/ada"})
    assert found == Path("/home/ada/.cache/plimsoll/spark-jars")
    cache = {"HOME": "/home/ada", "XDG_CACHE_HOME": "/var/cache/ada"}
    assert driver_pods.jars_directory(cache) == Path("/var/cache/ada/plimsoll/spark-jars")
    assert (
        driver_pods.jars_directory({**cache, driver_pods.JARS_VARIABLE: "jars"})
        == tmp_path / "jars"
    )


def test_machine_without_maven_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "mkdir", "sha256sum"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    environment = {"PATH": str(tools), driver_pods.JARS_VARIABLE: str(tmp_path / "jars")}
    assert driver_pods.fetch_jars(environment) == 1
    assert "mvn is not installed" in capfd.readouterr().err
