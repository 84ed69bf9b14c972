"""One SparkSession for every test that needs one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
JARS_TIMEOUT_S = 560
ARCHIVE_TIMEOUT_S = 560


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """The Kafka connector, fetched when this machine has not got it yet; beside it the classes of
    Spark, since every test of a verification starts a JVM of its own. `make pyspark` names another
    folder for them by PLIMSOLL_TEST_JARS."""
    from plimsoll_spark.session import JARS_VARIABLE

    fetched = subprocess.run(
        [ROOT / "spark" / "jars.sh", *filter(None, [os.environ.get("PLIMSOLL_TEST_JARS")])],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=JARS_TIMEOUT_S,
    )
    jars = Path(fetched.stdout.splitlines()[-1])
    command = [sys.executable, "-m", "plimsoll_spark.class_archive"]
    environment = {**os.environ, JARS_VARIABLE: str(jars)}
    subprocess.run(command, env=environment, check=True, timeout=ARCHIVE_TIMEOUT_S)
    return jars


def close_with_files(patch: pytest.MonkeyPatch) -> None:
    """Let the sockets over which PySpark collects results close with the files that read them;
    PySpark closes neither, and its files close themselves when nothing refers to them."""
    from pyspark import util

    connect = util.local_connect_and_auth

    def connected(*words: Any) -> Any:
        file, sock = connect(*words)
        sock.close()  # stays open as long as `file`
        return file, sock

    patch.setattr(util, "local_connect_and_auth", connected)


@pytest.fixture(scope="session")
def spark(spark_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from plimsoll_spark import session

    patch = pytest.MonkeyPatch()
    close_with_files(patch)
    patch.setitem(os.environ, session.JARS_VARIABLE, str(spark_jars))
    started = session.build(name="tests", cores=2, work=tmp_path_factory.mktemp("spark"))
    yield started
    started.stop()
    patch.undo()
