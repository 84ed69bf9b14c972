"""The only builder of a SparkSession: one process, `local[n]`, listening on loopback only.

Called by `verification` and by the tests' fixture. Never downloads: the Kafka connector's jars are
in the folder that PLIMSOLL_SPARK_JARS names (part of the image; elsewhere `spark/jars.sh` fetches
them).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from plimsoll_spark.settings import Refusal, Refused

JARS_VARIABLE = "PLIMSOLL_SPARK_JARS"
MEMORY_VARIABLE = "PLIMSOLL_SPARK_DRIVER_MEMORY"
DEFAULT_MEMORY = "512m"
CONNECTOR = "spark-sql-kafka-0-10_2.13-*.jar"


def jars_directory() -> Path:
    """Return the folder of the Kafka connector's jars. Raises `Refusal` if the connector is not in
    it."""
    directory = Path(os.environ.get(JARS_VARIABLE, ".cache/spark-jars")).absolute()
    if not any(directory.glob(CONNECTOR)):
        sentence = f"no Kafka connector for Spark in {directory}; run spark/jars.sh"
        raise Refusal(Refused.JARS_MISSING, sentence)
    return directory


def class_archive() -> Path:
    """Return the path of the class archive (`class_archive`) for the present versions of Spark and
    Java; it may not exist. The JVM would silently ignore the archive of another Java, or of changed
    jars."""
    directory = jars_directory()
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java").resolve()
    release = java.parent.parent / "release"
    spark = Path(pyspark.__file__)
    of = (release.read_text() if release.exists() else "", spark, int(spark.stat().st_mtime))
    key = hashlib.sha256(repr(of).encode()).hexdigest()[:12]
    return directory.with_name(f"{directory.name}-{key}.jsa")


def build(
    *,
    name: str,
    cores: int,
    work: Path,
    archives_to: Path | None = None,
) -> SparkSession:
    """Start the JVM and return a Spark session in it. `cores`: how many tasks run at the same time;
    `work`: the directory of temporary files; `archives_to`: a file to which the JVM writes an
    archive of its loaded classes when it ends, None: it uses an existing archive."""
    # Workers must run the interpreter that has this package, not PATH's `python3`.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    options = {
        "spark.driver.extraClassPath": f"{jars_directory()}/*",
        "spark.driver.memory": os.environ.get(MEMORY_VARIABLE, DEFAULT_MEMORY),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The driver's ports are on loopback; peers without this run's secret are refused.
        "spark.authenticate": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(work / "spark"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.session.timeZone": "UTC",
        # A producer that is run twice would write its records twice.
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        "spark.driver.extraJavaOptions": " ".join(java_options(archives_to)),
    }
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in options.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def java_options(archives_to: Path | None = None) -> list[str]:
    """Return the options of the JVM, quoted for Spark's configuration. `archives_to`: as in
    `build`.

    The optimising compiler is left out: the JVM only schedules, and the compiler would take
    processor time from the brokers under measurement.
    """
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    if archives_to is not None:
        return [*options, "-Xlog:disable", f'"-XX:ArchiveClassesAtExit={archives_to}"']
    archive = class_archive()
    return [*options, f'"-XX:SharedArchiveFile={archive}"'] if archive.exists() else options
