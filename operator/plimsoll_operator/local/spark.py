"""Whether this machine can run Spark drivers, and with which of its files.

Brokers need none of it: it is looked for when a local cluster starts, and what is missing is a
sentence in the status of each Verification.  Called by `cluster`.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path

MODULES = ("plimsoll_spark", "pyspark", "pyarrow", "confluent_kafka")
JARS_VARIABLE = "PLIMSOLL_SPARK_JARS"
"""As `plimsoll_spark.session` reads it."""
JARS_DEFAULT = Path(".cache/spark-jars")
CONNECTOR = "spark-sql-kafka-0-10_*.jar"


def jars_directory(environment: Mapping[str, str]) -> Path:
    """Where Spark's Kafka connector is, if it is anywhere."""
    return Path(environment.get(JARS_VARIABLE) or JARS_DEFAULT).absolute()


def why_no_driver(environment: Mapping[str, str]) -> str:
    """What to install before Verifications can run; empty when they can."""
    missing = []
    if any(importlib.util.find_spec(name) is None for name in MODULES):
        missing.append("PySpark (`pip install 'plimsoll[spark]'`)")
    if not _has_java(environment):
        missing.append("a Java runtime, 17 or later (Debian: openjdk-17-jre-headless)")
    jars = jars_directory(environment)
    if not any(jars.glob(CONNECTOR)):
        missing.append(
            f"Spark's Kafka connector, which is not in {jars} (spark/jars.sh of the source tree"
            f" fetches it; {JARS_VARIABLE} names its folder)"
        )
    if not missing:
        return ""
    return (
        f"Verifications need what is not installed here: {'; '.join(missing)}. Install it and"
        " start the local cluster again."
    )


def _has_java(environment: Mapping[str, str]) -> bool:
    home = environment.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return True
    return shutil.which("java", path=environment.get("PATH")) is not None
