"""Apache Kafka's own clients for chaos: Stayer.java, compiled once a run."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.kafka_jars import java_command, kafka_jars
from tests.integration.chaos_clients.frame import (
    GROUP,
    PARTITIONS,
    PLAIN,
    SESSION_MS,
    Kind,
    Place,
    PrintingReader,
    PrintingWriter,
    Reader,
    Writer,
    static_instance,
)
from tests.integration.chaos_clients.logins import java_login

SOURCE = Path(__file__).with_name("Stayer.java")
HEAP_MB = 96
COMPILE_S = 120
ASSIGNORS = "org.apache.kafka.clients.consumer."
LOGGED_BYTES_MAX = 50_000_000
# 3.9 logs through reload4j, 4.x through log4j 2.
RELOAD4J = """\
log4j.rootLogger=DEBUG, file
log4j.appender.file=org.apache.log4j.RollingFileAppender
log4j.appender.file.File={path}
log4j.appender.file.MaxFileSize={size}
log4j.appender.file.MaxBackupIndex=1
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d %p %c{{1}} %m%n
log4j.logger.org.apache.kafka.common.metrics=INFO
log4j.logger.org.apache.kafka.clients.FetchSessionHandler=INFO
"""
LOG4J2 = """\
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={path}
appender.file.filePattern={path}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{{1}} %m%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size={size}
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=1
rootLogger.level=DEBUG
rootLogger.appenderRef.file.ref=file
logger.metrics.name=org.apache.kafka.common.metrics
logger.metrics.level=INFO
logger.sessions.name=org.apache.kafka.clients.FetchSessionHandler
logger.sessions.level=INFO
"""


class Java(Kind):
    """Of one version."""

    def __init__(self, version: str) -> None:
        self._jars = kafka_jars(version)

    def prepare(self, place: Place) -> Kind:
        compiler = Path(java_command()).resolve().with_name("javac")
        words = [str(compiler), "-d", str(place.work), "-cp", self._jars.classpath, str(SOURCE)]
        subprocess.run(words, check=True, timeout=COMPILE_S)
        return self

    def writer(self, place: Place, topic: str, keys: int) -> Writer:
        words = ("producer", topic, PARTITIONS, keys, place.seed)
        config: dict[str, object] = {
            "acks": "all",
            "enable.idempotence": "true",
            "linger.ms": 2,
            "delivery.timeout.ms": place.delivery_ms,
            "max.block.ms": place.delivery_ms,
        }
        config |= java_login(place.writer)
        command = self._command(place, f"producer-{topic}", words, config)
        return PrintingWriter(place, topic, keys, command)

    def reader(self, place: Place, number: int) -> Reader:
        assignor = "CooperativeStickyAssignor" if place.cooperative else "RangeAssignor"
        instance = static_instance(number)
        config: dict[str, object] = {
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "session.timeout.ms": SESSION_MS,
            "partition.assignment.strategy": ASSIGNORS + assignor,
        }
        if instance:
            config["group.instance.id"] = instance
        config |= java_login(place.reader)
        command = self._command(place, f"consumer-{number}", ("consumer", PLAIN), config)
        return PrintingReader(place, number, command)

    def _command(
        self, place: Place, name: str, words: tuple[object, ...], config: Mapping[str, object]
    ) -> list[str]:
        old = self._jars.version.startswith("3.")
        logging = place.work / f"{name}.properties"
        text = RELOAD4J if old else LOG4J2
        logging.write_text(text.format(path=place.work / f"{name}.debug", size=LOGGED_BYTES_MAX))
        option = "log4j.configuration=file:" if old else "log4j2.configurationFile="
        both = {"bootstrap.servers": place.bootstrap, "client.id": name, **config}
        first, *rest = self._jars.command("Stayer", heap_mb=HEAP_MB)
        place_of = rest.index("-cp") + 1
        rest[place_of] = f"{place.work}:{rest[place_of]}"
        settings = [f"{key}={value}" for key, value in both.items()]
        return [first, f"-D{option}{logging}", *rest, *map(str, words), *settings]
