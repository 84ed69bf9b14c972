"""A local cluster as a subprocess, for tests and benchmarks: start, look, hurt, stop.

Waits are on conditions with a deadline; it ends only the processes that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from dev.local_api import LocalApi
from tests.integration.forked import Forked, begin, runs
from tests.integration.log_ends import log_end

from plimsoll_core.addresses import host_and_port, split_address

START_S = 60.0
STOP_S = 60.0
WAIT_S = 60.0
HTTP_S = 30.0
POLL_S = 0.1
UNDER_PYTEST = "PYTEST_VERSION" in os.environ


class DidNotStart(RuntimeError):
    """`plimsoll local` ended or stayed silent; the sentence holds what it said."""


def wait_for(
    what: str, condition: Callable[[], Any], timeout_s: float = WAIT_S, poll_s: float = POLL_S
) -> Any:
    """The first truthy value of `condition`, or an assertion that names what never came."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(poll_s)


class LocalCluster:
    """`directory` survives `stop` and `kill_everything`; `start` goes on from it."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int | None = 3,
        files: Sequence[Path] = (),
        restart: bool = True,
        arguments: Sequence[str] = (),
        forked: bool = UNDER_PYTEST,
    ) -> None:
        """`forked`: not the command itself, but what it does (tests/integration/forked.py)."""
        self.directory = directory
        self.brokers = brokers
        self.files = files
        self.restart = restart
        self.arguments = arguments
        self.forked = forked
        self.ready: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self.stderr_path = directory.parent / f"{directory.name}.stderr"

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- start and stop -------------------------------------------------------------------------

    @property
    def command(self) -> list[str]:
        words = [sys.executable, "-m", "plimsoll_operator.cli", "local"]
        words += ["--data", str(self.directory), *self.arguments]
        if self.brokers is not None:
            words += ["--brokers", str(self.brokers)]
        for path in self.files:
            words += ["-f", str(path)]
        return words if self.restart else [*words, "--no-restart"]

    def start(self, timeout_s: float = START_S) -> None:
        """Until the ready line is there."""
        assert self._process is None, "started once"
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with self.stderr_path.open("ab") as stderr:
            self._process = begin(self.command, stderr, forked=self.forked)
        line = self._first_line(timeout_s)
        if not line:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            raise DidNotStart(self.said())
        self.ready = json.loads(line)

    def _first_line(self, timeout_s: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self._process.stdout], [], [], 0.2)
            if readable:
                return self._process.stdout.readline()
        return b""

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        return self._ended()

    def _ended(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def said(self) -> str:
        """The end of every process's log."""
        parts = [self.stderr_path, *sorted((self.directory / "logs").glob("*.log"))]
        return "\n".join(f"== {p.name}\n{_end_of(p)}" for p in parts if p.exists())

    @property
    def operator_log(self) -> Path:
        return self.directory / "logs" / "operator.log"

    # --- looking --------------------------------------------------------------------------------

    @property
    def api(self) -> LocalApi:
        """Its API server, as the owner of the directory."""
        return LocalApi(self.directory)

    @property
    def bootstrap(self) -> str:
        return str(self.ready["bootstrap"])

    @property
    def controller(self) -> tuple[str, int]:
        return split_address(str(self.ready["controller"]))

    @property
    def pids(self) -> dict[str, int]:
        """Who runs now."""
        found: dict[str, int] = json.loads((self.directory / "pids.json").read_text())
        return found

    @property
    def broker_pids(self) -> list[int]:
        return [pid for name, pid in self.pids.items() if name != "controller"]

    @property
    def controller_pid(self) -> int:
        return self.pids["controller"]

    def address(self, broker_id: int) -> tuple[str, int]:
        return split_address(self.bootstrap.split(",")[broker_id])

    def config(self, broker_id: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.directory / f"broker-{broker_id}.json").read_text()
        )
        return found

    def http(self, broker_id: int, path: str) -> tuple[int, str]:
        """A GET at the broker's metrics port."""
        metrics = self.config(broker_id)["metrics"]
        url = f"http://{host_and_port(metrics['host'], metrics['port'])}{path}"
        try:
            with urllib.request.urlopen(url, timeout=HTTP_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, broker_id: int, name: str) -> float:
        """One sample of a broker's metrics; `name` with its labels, without the prefix."""
        start = f"plimsoll_broker_{name} "
        lines = self.http(broker_id, "/metrics")[1].splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))

    def metadata_records(self, broker_id: int = 0) -> list[dict[str, Any]]:
        """What is committed, as far as the broker's copy has it."""
        copies = (self.directory / f"broker-{broker_id}" / "__cluster_metadata").glob("tail-*")
        lines = max(copies).read_text().splitlines()
        return [record for line in lines for record in json.loads(line)["records"]]

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 5000})

    def known_brokers(self) -> set[int]:
        """As clients see them; empty when none answers, or one that goes just then was asked."""
        with contextlib.suppress(confluent_kafka.KafkaException):
            return set(self.admin().list_topics(timeout=5).brokers)
        return set()

    def topic(self, name: str) -> dict[int, confluent_kafka.admin.PartitionMetadata]:
        """The partitions as clients see them; empty when no broker answers."""
        with contextlib.suppress(confluent_kafka.KafkaException):
            metadata = self.admin().list_topics(name, timeout=5)
            return dict(metadata.topics[name].partitions)
        return {}

    def wait_isr(self, name: str, size: int, timeout_s: float = WAIT_S) -> None:
        """Until every partition of the topic has that many in sync, and a leader."""

        def full() -> bool:
            partitions = self.topic(name)
            return bool(partitions) and all(
                len(p.isrs) == size and p.leader >= 0 for p in partitions.values()
            )

        wait_for(f"{size} in sync in every partition of {name}", full, timeout_s, 0.1)

    def create_topic(
        self, name: str, partitions: int, configs: dict[str, str] | None = None
    ) -> None:
        factor = min(3, self.brokers or 3)
        topic = NewTopic(name, partitions, factor, config=configs or {})
        admin = self.admin()
        for future in admin.create_topics([topic]).values():
            future.result(WAIT_S)

    # --- hurting --------------------------------------------------------------------------------

    def kill_broker(self, broker_id: int) -> int:
        """SIGKILL; the pid it had."""
        pid = self.pids[str(broker_id)]
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_restarted(self, broker_id: int, old_pid: int) -> int:
        return int(
            wait_for(
                f"broker {broker_id} runs again",
                lambda: (pid := self.pids.get(str(broker_id))) not in (None, old_pid) and pid,
            )
        )

    def wait_rejoined(self, broker_id: int, old_pid: int) -> None:
        """Until its new process is unfenced, and so was fenced before: the ISR that clients are
        shown from now on is not the one from before the kill."""
        self.wait_restarted(broker_id, old_pid)

        def ready() -> bool:
            with contextlib.suppress(OSError):
                return self.http(broker_id, "/readyz")[0] == 200
            return False

        wait_for(f"broker {broker_id} is ready", ready, START_S, 0.1)

    def kill_everything(self) -> None:
        """SIGKILL to the controller and every broker at once."""
        pids = self.pids
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._ended()
        wait_for("every process is gone", lambda: not any(runs(pid) for pid in pids.values()))

    @contextlib.contextmanager
    def frozen_controller(self) -> Iterator[None]:
        """SIGSTOP for the length of the block."""
        pid = self.controller_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def _end_of(path: Path, size: int = 4_000) -> str:
    return path.read_bytes()[-size:].decode(errors="replace")


# --- clients --------------------------------------------------------------------------------------


class Acked:
    """What a producer was told: value -> (partition, offset)."""

    def __init__(self) -> None:
        self.records: dict[bytes, tuple[int, int]] = {}
        self.errors: list[confluent_kafka.KafkaError] = []

    def delivered(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is not None:
            self.errors.append(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.records[value] = (partition, offset)


def a_producer(bootstrap: str, **config: Any) -> confluent_kafka.Producer:
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": 60_000,
            **config,
        }
    )


def produce(bootstrap: str, topic: str, values: Iterable[bytes], **config: Any) -> Acked:
    """Write and wait for every answer."""
    acked = Acked()
    producer = a_producer(bootstrap, **config)
    for value in values:
        while True:
            try:
                producer.produce(topic, value=value, on_delivery=acked.delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    left = producer.flush(60)
    assert left == 0, f"{left} records were never answered"
    return acked


def committed_messages(
    bootstrap: str, topic: str, partitions: int, **config: Any
) -> Iterator[confluent_kafka.Message]:
    """Everything that is committed, of each partition in its order."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    places = [confluent_kafka.TopicPartition(topic, index) for index in range(partitions)]
    ends = {place.partition: log_end(consumer, place) for place in places}
    starts = [confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)]
    consumer.assign(starts)
    reached = {partition: end == 0 for partition, end in ends.items()}
    deadline = time.monotonic() + 60
    while not all(reached.values()):
        assert time.monotonic() < deadline, f"stuck at {reached} on the way to {ends}"
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            yield message
            reached[partition] = reached[partition] or offset + 1 >= ends[partition]
    consumer.close()


def consume_all(
    bootstrap: str, topic: str, partitions: int, **config: Any
) -> dict[bytes, list[tuple[int, int]]]:
    """Everything that is committed: value -> every (partition, offset) it is at."""
    found: dict[bytes, list[tuple[int, int]]] = {}
    for message in committed_messages(bootstrap, topic, partitions, **config):
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        found.setdefault(message.value() or b"", []).append((partition, offset))
    return found


def assert_nothing_lost(
    acked: Acked, found: dict[bytes, list[tuple[int, int]]], *, once: bool = True
) -> None:
    """Every acked record is where its producer was told; with `once` nothing is there twice."""
    lost = {v: at for v, at in acked.records.items() if at not in found.get(v, [])}
    assert not lost, f"{len(lost)} acked records are lost, such as {next(iter(lost.items()))}"
    if once:
        twice = {value: at for value, at in found.items() if len(at) > 1}
        assert not twice, f"{len(twice)} records are there twice, {next(iter(twice.items()))}"
