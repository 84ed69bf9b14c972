"""`python -m plimsoll_spark.class_archive`: archives the classes that Spark loads.

The JVM reads some ten thousand classes before Spark answers its first query, which takes half of
the processor time up to there. It skips that if it finds this archive beside the folder of the
connector's jars (class-data sharing; 140 MB). Run it once where the jars are: when building the
image, or before tests.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from plimsoll_spark import session

END_S = 500


def make(archive: Path) -> None:
    """Start a Spark session, exercise it, and have the JVM write an archive of its loaded classes
    when it ends. Replace older archives."""
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="archiving-") as directory:
        work = Path(directory)
        made = work / "classes.jsa"
        spark = session.build(name="archive", cores=2, work=work, jvm=session.Jvm(archives_to=made))
        jvm: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc
        _exercise(spark, work)
        spark.stop()
        # The JVM ends when its input is closed.
        assert jvm.stdin is not None
        jvm.stdin.close()
        jvm.wait(END_S)
        for other in archive.parent.glob(f"{session.jars_directory().name}-*{archive.suffix}"):
            other.unlink()
        made.replace(archive)


def _exercise(spark: SparkSession, work: Path) -> None:
    """Let the JVM load the classes that a verification needs, by doing a little of each kind of
    work."""
    spark.sparkContext.parallelize(range(2), 2).foreach(str)
    rows = spark.createDataFrame([(n, n % 3) for n in range(10)], "value long, key long")
    rows.write.parquet(str(work / "rows"))
    kept = spark.read.parquet(str(work / "rows"))
    sums = kept.groupBy("key").agg(F.sum("value").alias("sum"))
    sums.join(rows, "key").orderBy("value").collect()
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
    spark.read.format("kafka").options(**options).load()


def main() -> int:
    """Create the archive if it does not exist. Return the exit code, 0."""
    archive = session.class_archive()
    if not archive.exists():
        make(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
