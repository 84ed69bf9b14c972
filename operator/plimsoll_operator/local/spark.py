"""Checks that this machine can run Spark drivers, and finds the files that they need.

Brokers need none of them. The check runs when a local cluster starts; the status of each
Verification names what is missing. Called by `cluster`.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from plimsoll_operator.shipped_files import shipped_directory, working_tree

MODULES = ("plimsoll_spark", "pyspark", "pyarrow", "confluent_kafka")
JARS_VARIABLE = "PLIMSOLL_SPARK_JARS"
"""The variable that `plimsoll_spark.session` reads."""
CONNECTOR = "spark-sql-kafka-0-10_*.jar"


def jars_directory(environment: Mapping[str, str]) -> Path:
    """Return the folder of Spark's Kafka connector, existing or not; it does not depend on the
    working directory. In a working tree it lies below the tree, else in the user's cache (XDG)."""
    if stated := environment.get(JARS_VARIABLE):
        return Path(stated).absolute()
    tree = working_tree()
    if tree is not None:
        return tree / ".cache" / "spark-jars"
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "/") / ".cache"
    return Path(cache).absolute() / "plimsoll" / "spark-jars"


def fetch_jars(environment: Mapping[str, str]) -> int:
    """Fetch the jars with Maven into `jars_directory`, and print it; return the exit code."""
    script = shipped_directory("spark") / "jars.sh"
    words = ("bash", str(script), str(jars_directory(environment)))
    return subprocess.run(words, env=dict(environment), check=False).returncode


def why_no_driver(environment: Mapping[str, str]) -> str:
    """Return a sentence about the software that Verifications lack, or ""."""
    missing = []
    if any(importlib.util.find_spec(name) is None for name in MODULES):
        missing.append(f"PySpark (`{sys.executable} -m pip install 'plimsoll[spark]'`)")
    if not _has_java(environment):
        missing.append("a Java runtime, 17 or later (Debian: openjdk-17-jre-headless)")
    jars = jars_directory(environment)
    if not any(jars.glob(CONNECTOR)):
        missing.append(
            f"Spark's Kafka connector, which is not in {jars} (`plimsoll spark-jars` downloads "
            f"it with Maven; {JARS_VARIABLE} selects another folder)"
        )
    if not missing:
        return ""
    return (
        f"Verifications need software that is not installed: {'; '.join(missing)}. Install it "
        "and restart the local cluster."
    )


def _has_java(environment: Mapping[str, str]) -> bool:
    home = environment.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return True
    return shutil.which("java", path=environment.get("PATH")) is not None
