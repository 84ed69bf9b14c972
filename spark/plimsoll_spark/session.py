"""The only builder of a SparkSession: `local[n]`, which listens on loopback only, or a driver with
executors.

Called by `run` and by the tests' fixture. Executors are pods that Spark makes of the template in
the driver's configuration, or processes of this machine (`local-cluster`). Spark's RPC between them
is authenticated and encrypted by a secret of this run. Never downloads: the Kafka connector's jars
are in the folder that PLIMSOLL_SPARK_JARS names (part of the image; elsewhere `spark/jars.sh`
fetches them).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from plimsoll_spark.publish import api_server
from plimsoll_spark.settings import Pods, Refusal, Refused, Runner

JARS_VARIABLE = "PLIMSOLL_SPARK_JARS"
MEMORY_VARIABLE = "PLIMSOLL_SPARK_DRIVER_MEMORY"
POD_NAME_VARIABLE = "PLIMSOLL_POD_NAME"
POD_IP_VARIABLE = "PLIMSOLL_POD_IP"
DEFAULT_MEMORY = "512m"
CONNECTOR = "spark-sql-kafka-0-10_2.13-*.jar"
LOOPBACK = "127.0.0.1"
DRIVER_PORT = 7078
BLOCKS_PORT = 7079
"""Ports of the pods: of the driver's RPC, and of the blocks of driver and executors. The operator's
NetworkPolicies name them."""
TASK_ATTEMPTS = 4
ENDED_MAX = 8
"""Bound on the executors that end in ten minutes, for each one that was requested."""
IN_PROCESS = Runner()


def jars_directory() -> Path:
    """Return the folder of the Kafka connector's jars. Raises `Refusal` if the connector is not in
    it."""
    directory = Path(os.environ.get(JARS_VARIABLE, ".cache/spark-jars")).absolute()
    if not any(directory.glob(CONNECTOR)):
        sentence = f"the Kafka connector for Spark is missing in {directory}; run spark/jars.sh"
        raise Refusal(Refused.JARS_MISSING, sentence)
    return directory


def java() -> Path:
    """Return the path of the Java program: that of JAVA_HOME, else that of PATH."""
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java") if home else Path(shutil.which("java") or "java").resolve()


def spark_home() -> Path:
    """Return the folder of pyspark, which holds Spark's jars."""
    return Path(pyspark.__file__).parent


def class_archive() -> Path:
    """Return the path of the class archive (`class_archive`) for the present versions of Spark and
    Java; it may not exist. The JVM would silently ignore the archive of another Java, or of changed
    jars."""
    directory = jars_directory()
    release = java().parent.parent / "release"
    spark = Path(pyspark.__file__)
    of = (release.read_text() if release.exists() else "", spark, int(spark.stat().st_mtime))
    key = hashlib.sha256(repr(of).encode()).hexdigest()[:12]
    return directory.with_name(f"{directory.name}-{key}.jsa")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    """How the driver's JVM runs. `archives_to`: a file to which it writes an archive of its loaded
    classes when it ends, None: it uses an existing archive; `heap_mb`: its heap in MiB, None:
    `DEFAULT_MEMORY` (PLIMSOLL_SPARK_DRIVER_MEMORY overrides both); `events`: an existing directory
    for Spark's event log, None: there is none."""

    archives_to: Path | None = None
    heap_mb: int | None = None
    events: Path | None = None


PLAIN = Jvm()


def build(
    *,
    name: str,
    cores: int,
    work: Path,
    runner: Runner = IN_PROCESS,
    jvm: Jvm = PLAIN,
) -> SparkSession:
    """Start the JVM and return a Spark session in it. Executors may not have started yet. Sets
    environment variables of this process that Spark reads. Raises `Refusal` if the connector's jars
    are missing.

    `cores`: how many tasks run at the same time; `work`: the directory of temporary files;
    `runner`: the executors, none by default; `jvm`: how the driver's JVM runs.
    """
    # Workers must run the interpreter that has this package, not PATH's `python3`.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    options = {
        "spark.driver.extraClassPath": f"{jars_directory()}/*",
        "spark.driver.memory": os.environ.get(
            MEMORY_VARIABLE, f"{jvm.heap_mb}m" if jvm.heap_mb else DEFAULT_MEMORY
        ),
        # Peers without this run's secret are refused.
        "spark.authenticate": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(work / "spark"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.speculation": "false",
        "spark.driver.extraJavaOptions": " ".join(java_options(jvm.archives_to)),
    }
    if jvm.events is not None:
        options |= event_log(jvm.events)
    if runner.executors == 0:
        master, more = f"local[{cores}]", _loopback() | {
            # A producer that is run twice would write its records twice.
            "spark.task.maxFailures": "1",
        }  # fmt: skip
    elif runner.pods is None:
        sizes = f"{runner.executors},{runner.cores},{runner.heap_megabytes}"
        master, more = f"local-cluster[{sizes}]", _loopback() | process_options(runner)
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {_secret(work)} pyspark-shell"
        # A worker of `local-cluster` finds Spark's jars by the first, and listens at the others.
        os.environ["SPARK_HOME"] = str(_linked_home(work))
        os.environ["SPARK_LOCAL_IP"] = os.environ["SPARK_LOCAL_HOSTNAME"] = LOOPBACK
    else:
        master, more = f"k8s://{api_server()}", pod_options(name, runner, runner.pods)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (options | more).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def event_log(directory: Path) -> dict[str, str]:
    """Return Spark's options for an event log of one plain file, which can be read up to its last
    line if the JVM is killed."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.absolute().as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


def java_options(archives_to: Path | None = None) -> list[str]:
    """Return the options of the JVM, quoted for Spark's configuration. `archives_to`: as in
    `Jvm`.

    The optimising compiler is left out: the JVM only schedules, and the compiler would take
    processor time from the brokers under measurement.
    """
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    if archives_to is not None:
        return [*options, "-Xlog:disable", f'"-XX:ArchiveClassesAtExit={archives_to}"']
    archive = class_archive()
    return [*options, f'"-XX:SharedArchiveFile={archive}"'] if archive.exists() else options


def bracketed(address: str) -> str:
    """Return a host as it stands in a URL: an IPv6 address in brackets, others unchanged."""
    return f"[{address}]" if ":" in address else address


def _loopback() -> dict[str, str]:
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def _secret(work: Path) -> Path:
    """Write the secret options, which a command line would show, to a file that only this user
    reads. Return its path."""
    path = work / "spark-secret.properties"
    path.touch(mode=0o600)
    path.write_text(f"spark.authenticate.secret={os.urandom(32).hex()}\n")
    return path


def _linked_home(work: Path) -> Path:
    """Create a folder with links to all of Spark's files, and return it: a worker writes beside the
    jars, and the installed package is to stay unchanged."""
    linked = work / "spark-home"
    linked.mkdir()
    for one in spark_home().iterdir():
        (linked / one.name).symlink_to(one)
    return linked


def _with_executors(runner: Runner) -> dict[str, str]:
    return {
        # A task that is lost with its executor runs again, as another producer.
        "spark.task.maxFailures": str(TASK_ATTEMPTS),
        "spark.network.crypto.enabled": "true",
        "spark.executor.cores": str(runner.cores),
        "spark.executor.memory": f"{runner.heap_megabytes}m",
        "spark.executor.extraClassPath": f"{jars_directory()}/*",
        "spark.executor.extraJavaOptions": " ".join(java_options()),
        "spark.executor.heartbeatInterval": "5s",
        "spark.network.timeout": "60s",
        # `executors.wait` waits for all of them.
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
    }


def process_options(runner: Runner) -> dict[str, str]:
    """Return the options by which executors are processes of this machine."""
    return _with_executors(runner) | {"spark.worker.ui.port": "0"}


def pod_options(name: str, runner: Runner, pods: Pods) -> dict[str, str]:
    """Return the options by which Spark makes pods. Spark reads the API server's certificate and
    token from the pod's ServiceAccount. Its rights are on pods alone, so whatever else Spark would
    make is disabled."""
    address = bracketed(os.environ[POD_IP_VARIABLE])
    options = _with_executors(runner) | {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        "spark.executor.instances": str(runner.executors),
        # Spark gives up on executors that end at their start, not on those of a long run.
        "spark.executor.maxNumFailures": str(ENDED_MAX * runner.executors),
        "spark.executor.failuresValidityInterval": "10m",
        "spark.executor.memoryOverhead": f"{runner.overhead_megabytes}m",
        # Not the one of each side: an executor asks for its settings before it reads that.
        "spark.authenticate.secret.file": pods.secret,
        "spark.kubernetes.namespace": pods.namespace,
        "spark.kubernetes.driver.pod.name": os.environ[POD_NAME_VARIABLE],
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.waitToReusePersistentVolumeClaim": "false",
        "spark.kubernetes.container.image": pods.image,
        "spark.kubernetes.container.image.pullPolicy": pods.image_pull_policy,
        "spark.kubernetes.executor.podTemplateFile": pods.template,
        "spark.kubernetes.executor.podNamePrefix": f"{name}-executor",
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.executor.request.cores": pods.cpu,
    }
    if pods.cpu_limit is not None:
        options["spark.kubernetes.executor.limit.cores"] = pods.cpu_limit
    return options
