"""Kafka's own producer as a load: ProducerPerformance, with acks=all.

librdkafka makes a TLS record of each Kafka record, so brokers decrypt a thousand small ones for
each MB; a producer in Java encrypts whole batches.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers.processor_time import Meter, Use
from bench.peers.systems.system import System
from tests.conformance.kafka_jars import kafka_jars

RUN_S = 240
HEAP_MB = 512
RECORD_BYTES = 1000
MIB = 2**20 / 1e6
"""Its MB are MiB."""
TOLD = re.compile(r"\(([\d.]+) MB/sec\)")


def run(system: System, log: str, megabytes: int) -> tuple[dict[str, float], Use]:
    """Return MB/s without the start of the JVM, and the processor time of the servers."""
    config = {
        "bootstrap.servers": system.bootstrap,
        "acks": "all",
        "batch.size": "131072",
        "linger.ms": "5",
        "buffer.memory": "134217728",
        "enable.idempotence": "false",
    }
    if authority := system.client_settings().get("ssl.ca.location"):
        config |= {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority),
        }
    count = megabytes * 1_000_000 // RECORD_BYTES
    with TemporaryDirectory() as directory:
        properties = Path(directory) / "producer.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        command = kafka_jars().command(
            "org.apache.kafka.tools.ProducerPerformance",
            "--topic", log, "--throughput", "-1", "--record-size", str(RECORD_BYTES),
            "--num-records", str(count), "--producer.config", str(properties),
            heap_mb=HEAP_MB, short_lived=False,
        )  # fmt: skip
        meter = Meter(system.processes())
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=True,
            start_new_session=True,
        )
        used = meter.used()
    rates = TOLD.findall(done.stdout)
    figures = {"mb_per_s": float(rates[-1]) * MIB, "megabytes": float(megabytes)}
    return figures, used
