"""Fetches Apache Kafka's own jars, once per version, through the ordinary Maven client.

Called by conformance tests and the benchmark.  Decides nothing but where the jars lie: a folder per
version under the checkout's `.cache/`, and one for what is built upon its clients (Connect with its
file connectors, MirrorMaker 2, Streams with its tests).  Never names a registry; Maven's settings
do.  Beside each folder lies what the JVM makes of its classes once (class-data sharing): each of a
hundred tools in a test run needs 0.3 s less of a processor for it.

Run as a script to fetch them ahead of a test run: `python tests/conformance/kafka_jars.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

BROKER_VERSION = "4.1.0"
VERSIONS = (BROKER_VERSION, "3.9.1")
CACHE = Path(__file__).resolve().parents[2] / ".cache"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_TIMEOUT_S = 540
ARCHIVE_TIMEOUT_S = 300

# 4.x is compiled against SLF4J 1 and ships its log4j 2 binding only in the tar ball.
_ARTIFACTS = {
    "4.1.0": (
        "org.apache.kafka:kafka_2.13:4.1.0",
        "org.apache.kafka:kafka-tools:4.1.0",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    ),
    "3.9.1": ("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1"),
}
# `:test` is the classifier: programs of Kafka's system tests, and what they need.
_APPLICATIONS = (
    *(f"org.apache.kafka:{name}:{BROKER_VERSION}" for name in ("connect-file", "connect-mirror")),
    f"org.apache.kafka:kafka-streams:{BROKER_VERSION}",
    f"org.apache.kafka:kafka-streams:{BROKER_VERSION}:test",
    f"org.apache.kafka:kafka-clients:{BROKER_VERSION}:test",
    f"org.apache.kafka:connect-runtime:{BROKER_VERSION}",
    f"org.apache.kafka:connect-json:{BROKER_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
)

LOADED_BY_TOOLS = (
    *("kafka", "connect-", "jackson-core", "jackson-databind", "jackson-annotations", "log4j-"),
    *("slf4j-", "reload4j-", "jopt-simple", "argparse4j", "metrics-core"),
)


class JarsUnavailable(RuntimeError):
    """Maven is missing, or it could not fetch what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaJars:
    """One version of Kafka: a class path, and the class names that moved between versions."""

    version: str
    directory: Path

    @property
    def classpath(self) -> str:
        """What to give to `java -cp`."""
        return f"{self.directory}{os.sep}*"

    @property
    def archive(self) -> Path:
        """Its classes, for `-XX:SharedArchiveFile`; a JVM does without one that another made."""
        return self.directory.with_name(f"{self.directory.name}.jsa")

    @property
    def dump_log_segments(self) -> str:
        """Main class of the segment reader."""
        return "kafka.tools.DumpLogSegments"

    @property
    def storage_tool(self) -> str:
        """Main class of the directory formatter."""
        return "kafka.tools.StorageTool"

    @property
    def console_producer(self) -> str:
        """Main class of the console producer."""
        package = "kafka.tools" if self.version.startswith("3.") else "org.apache.kafka.tools"
        return f"{package}.ConsoleProducer"

    @property
    def console_consumer(self) -> str:
        """Main class of the console consumer."""
        return "org.apache.kafka.tools.consumer.ConsoleConsumer"

    @property
    def delete_records(self) -> str:
        """Main class of kafka-delete-records.sh."""
        return "org.apache.kafka.tools.DeleteRecordsCommand"

    @property
    def consumer_groups(self) -> str:
        """Main class of kafka-consumer-groups.sh."""
        return "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

    @property
    def get_offsets(self) -> str:
        """Main class of kafka-get-offsets.sh."""
        return "org.apache.kafka.tools.GetOffsetShell"

    @property
    def topics(self) -> str:
        """Main class of kafka-topics.sh."""
        return "org.apache.kafka.tools.TopicCommand"

    @property
    def configs(self) -> str:
        """Main class of kafka-configs.sh."""
        return "kafka.admin.ConfigCommand"

    @property
    def transactions(self) -> str:
        """Main class of kafka-transactions.sh."""
        return "org.apache.kafka.tools.TransactionsCommand"

    @property
    def log_dirs(self) -> str:
        """Main class of kafka-log-dirs.sh."""
        return "org.apache.kafka.tools.LogDirsCommand"

    @property
    def reassign_partitions(self) -> str:
        """Main class of kafka-reassign-partitions.sh."""
        return "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"

    def command(
        self, main_class: str, *arguments: str, heap_mb: int = 256, short_lived: bool = True
    ) -> list[str]:
        """The command line that runs one of Kafka's classes.

        `short_lived`: it is over before the optimising compiler has paid for itself.  Without that
        compiler a JVM encrypts 25 MB/s at most, since it alone makes use of the processor's
        instructions for AES.
        """
        java = [java_command(), f"-Xmx{heap_mb}m"]
        java += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if short_lived else ["-XX:+UseG1GC"]
        if self.archive.exists():
            java.append(f"-XX:SharedArchiveFile={self.archive}")
        return [*java, "-cp", self.classpath, main_class, *arguments]


def java_command() -> str:
    """The `java` to run."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found:
        raise JarsUnavailable("java is not installed (Debian: openjdk-17-jre-headless)")
    return found


def kafka_jars(version: str = BROKER_VERSION) -> KafkaJars:
    """The jars of `version`, fetched when this machine has not got them yet."""
    return _found_or_fetched(version, f"kafka-{version}", _ARTIFACTS[version])


def application_jars() -> KafkaJars:
    """The jars of Connect, MirrorMaker 2 and Streams."""
    return _found_or_fetched(BROKER_VERSION, f"kafka-applications-{BROKER_VERSION}", _APPLICATIONS)


def _found_or_fetched(version: str, folder: str, artifacts: tuple[str, ...]) -> KafkaJars:
    directory = CACHE / folder
    if not directory.is_dir():
        _fetch(artifacts, directory)
    jars = KafkaJars(version=version, directory=directory)
    if not jars.archive.exists():
        _make_archive(jars)
    return jars


def _make_archive(jars: KafkaJars) -> None:
    """Fifteen seconds of a processor, once.  Where the JVM makes none in time, its tools start more
    slowly."""
    java = Path(java_command()).resolve()
    own = (java.parent.parent / "lib" / "classlist").read_text()
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="archiving-") as work:
        names, made = Path(work, "classes"), Path(work, "archive.jsa")
        names.write_text(own + "".join(f"{name}\n" for name in _classes(jars.directory)))
        dump = ["-Xshare:dump", f"-XX:SharedClassListFile={names}", f"-XX:SharedArchiveFile={made}"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [java, *dump, "-cp", jars.classpath],
                capture_output=True,
                timeout=ARCHIVE_TIMEOUT_S,
                check=False,
            )
        if made.exists():
            made.replace(jars.archive)


def _classes(directory: Path) -> Iterator[str]:
    """Of the jars that tools load from: to archive a class takes two milliseconds, and twenty
    thousand more are there that a broker or nobody loads."""
    for jar in sorted(directory.glob("*.jar")):
        if not jar.name.startswith(LOADED_BY_TOOLS):
            continue
        for name in zipfile.ZipFile(jar).namelist():
            path, _, suffix = name.rpartition(".")
            if suffix == "class" and not path.startswith("META-INF/"):
                yield path


def _fetch(artifacts: tuple[str, ...], directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailable("mvn is not installed (Debian: maven)")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as work:
        pom, jars = Path(work, "pom.xml"), Path(work, "jars")
        pom.write_text(_pom(artifacts))
        done = subprocess.run(
            [
                *(maven, "-B", "-q", "-C", "-f", str(pom), COPY),
                *("-DincludeScope=runtime", f"-DoutputDirectory={jars}"),
            ],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise JarsUnavailable(f"Maven could not fetch {directory.name}: {done.stdout[-2000:]}")
        try:
            jars.rename(directory)
        except OSError:  # another process fetched the same version meanwhile
            if not directory.is_dir():
                raise


def _pom(artifacts: tuple[str, ...]) -> str:
    parts = [artifact.split(":") for artifact in artifacts]
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>"
        + "".join(f"<classifier>{one}</classifier>" for one in classifier)
        + "</dependency>"
        for group, name, version, *classifier in parts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>dev.plimsoll</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


if __name__ == "__main__":
    for wanted in sys.argv[1:] or VERSIONS:
        print(kafka_jars(wanted).directory)
    print(application_jars().directory)
