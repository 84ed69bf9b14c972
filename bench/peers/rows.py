"""The rows of the table: each is one named measurement of one running system."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.peers import catch_up, java_producer
from bench.peers.client_process import consumer_without_sessions, run
from bench.peers.crowd import connections
from bench.peers.processor_time import Meter, Use, resident_mb
from bench.peers.systems.system import KafkaSystem, Kind, System

Figures = dict[str, float]
EVERY = ("Plimsoll", "before", "Kafka", "JetStream", "C floor", "Python floor")
PEERS = EVERY[:4]
KAFKA_CLIENTS = EVERY[:3]
KAFKA_PROTOCOL = (*KAFKA_CLIENTS, *EVERY[4:])
IDEMPOTENT = {"idempotent": True}
PARTITIONS = 12
KILL_AFTER_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How long a round is."""

    seconds: float
    megabytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`fresh`: on a cluster of its own."""

    name: str
    measure: Callable[[System, Scale], Figures]
    shown: tuple[str, ...]
    systems: tuple[str, ...] = PEERS
    kind: Kind = field(default_factory=Kind)
    fresh: bool = False
    starts: bool = False
    """`measure` is given a system that is not started, and leaves it running."""


def log_of(name: str) -> str:
    """Return the name of the topic, or of the streams, of a row."""
    return "".join(one if one.isalnum() else "-" for one in name)


def of_use(use: Use, figures: Mapping[str, float]) -> Figures:
    """Return the processor time of a record and of a MB, and what else ran."""
    found: Figures = {
        "brokers_cores": use.brokers_s / use.seconds,
        "controllers_cores": use.controllers_s / use.seconds,
        "clients_cores": use.clients_s / use.seconds,
        "others_cores": use.others_cores,
        "kernel_cores": use.kernel_cores,
        "steal_cores": use.steal_cores,
    }
    if records := figures.get("records"):
        found["brokers_us_a_record"] = use.brokers_s * 1e6 / records
        found["clients_us_a_record"] = use.clients_s * 1e6 / records
    if megabytes := figures.get("megabytes"):
        found["brokers_ms_a_mb"] = use.brokers_s * 1e3 / megabytes
        found["clients_ms_a_mb"] = use.clients_s * 1e3 / megabytes
    return found


def loaded(
    system: System, load: dict[str, Any], meanwhile: Callable[[], None] = lambda: None
) -> Figures:
    figures, use = run(system, load, meanwhile)
    resident = max(
        (resident_mb(pid) for pid in system.processes().brokers if Path(f"/proc/{pid}").exists()),
        default=0.0,
    )
    return {**figures, **of_use(use, figures), "resident_mb": resident}


def acks(name: str, *, rate: int, replicas: int = 3, partitions: int = PARTITIONS) -> Row:
    """Single records at a rate."""

    def measure(system: System, scale: Scale) -> Figures:
        log = log_of(name)
        system.make_log(log, partitions, replicas)
        load = {"load": "acks", "log": log, "partitions": partitions, "record_bytes": 1000}
        warm_s = scale.seconds / 2
        return loaded(system, {**load, "rate": rate, "seconds": scale.seconds, "warm_s": warm_s})

    return Row(
        name=name,
        measure=measure,
        shown=("p50_ms", "p99_ms", "brokers_us_a_record", "clients_us_a_record"),
        systems=EVERY,
        kind=Kind(replicas=replicas),
    )


def crowded(count: int) -> Row:
    """Single records at a rate, beside clients that are connected and idle."""
    name = f"ack at 1,000/s, {count:,} idle connections"

    def measure(system: System, scale: Scale) -> Figures:
        system.make_log("ready", 1, 3)
        with connections(system.bootstrap, count):
            return acks(name, rate=1_000).measure(system, scale)

    return replace(acks(name, rate=1_000), measure=measure, systems=PEERS, fresh=True)


def spread_out(partitions: int) -> Row:
    """Single records at a rate, over many partitions."""
    row = acks(f"ack at 1,000/s, {partitions:,} partitions", rate=1_000, partitions=partitions)
    return replace(row, systems=KAFKA_CLIENTS, fresh=True, shown=(*row.shown, "resident_mb"))


def sessionless(partitions: int) -> Row:
    """A consumer without fetch sessions; a record now and then."""
    name = f"100 records/s, a consumer without fetch sessions, {partitions:,} partitions"

    def measure(system: System, scale: Scale) -> Figures:
        log = log_of(name)
        system.make_log(log, partitions, 3)
        load = {"load": "acks", "log": log, "partitions": partitions, "record_bytes": 100}
        load |= {"rate": 100, "seconds": scale.seconds, "warm_s": scale.seconds / 2}
        with consumer_without_sessions(system, log, partitions) as consumer:
            figures, use = run(system, load, beside=[consumer])
        return {**figures, **of_use(use, figures)}

    shown = ("brokers_cores", "p50_ms")
    return Row(name=name, measure=measure, shown=shown, systems=KAFKA_CLIENTS, fresh=True)


def java(name: str, *, tls: bool) -> Row:
    """Kafka's own producer, as many records as are acknowledged."""

    def measure(system: System, scale: Scale) -> Figures:
        log = log_of(name)
        system.make_log(log, PARTITIONS, 3)
        java_producer.run(system, log, max(1, scale.megabytes // 4))
        figures, use = java_producer.run(system, log, scale.megabytes)
        return {**figures, **of_use(use, figures)}

    shown = ("mb_per_s", "brokers_ms_a_mb")
    kind = Kind(tls=tls)
    return Row(name=name, measure=measure, shown=shown, systems=KAFKA_CLIENTS, kind=kind)


def writes(name: str, systems: tuple[str, ...] = EVERY, **load: Any) -> Row:
    """As many records as are acknowledged."""
    wanted = {"record_bytes": 1000, "batch_bytes": 131072, "share": 1.0, **load}
    share = wanted.pop("share")

    def measure(system: System, scale: Scale) -> Figures:
        log, megabytes = log_of(name), max(1, int(scale.megabytes * share))
        system.make_log(log, PARTITIONS, 3)
        load = {"load": "write", "log": log, "partitions": PARTITIONS, **wanted}
        load |= {"megabytes": megabytes, "warm_megabytes": max(1, megabytes // 4)}
        return loaded(system, load)

    shown = ("mb_per_s", "brokers_ms_a_mb", "clients_ms_a_mb")
    return Row(name=name, measure=measure, shown=shown, systems=systems)


def reads(name: str, *, group: bool) -> Row:
    def measure(system: System, scale: Scale) -> Figures:
        log = log_of(name)
        system.make_log(log, PARTITIONS, 3)
        fill = {"load": "write", "log": log, "partitions": PARTITIONS, "record_bytes": 1000}
        run(system, {**fill, "megabytes": scale.megabytes, "warm_megabytes": 1})
        load = {"load": "read", "log": log, "partitions": PARTITIONS, "group": group}
        return loaded(system, load)

    shown = ("mb_per_s", "first_s", "brokers_ms_a_mb")
    systems = KAFKA_CLIENTS if group else PEERS
    return Row(name=name, measure=measure, shown=shown, systems=systems)


def idle(name: str, *, partitions: int, after_s: float, systems: tuple[str, ...] = PEERS) -> Row:
    """Nothing is asked of it."""

    def measure(system: System, scale: Scale) -> Figures:
        if partitions:
            system.make_log(log_of(name), partitions, 3)
        time.sleep(after_s)
        meter = Meter(system.processes())
        time.sleep(scale.seconds)
        used = meter.used()
        resident = max(map(resident_mb, system.processes().brokers))
        return {**of_use(used, {}), "resident_mb": resident}

    shown = ("brokers_cores", "controllers_cores", "resident_mb")
    return Row(name=name, measure=measure, shown=shown, systems=systems, fresh=True)


def killed(name: str) -> Row:
    """A broker is killed; the gap between acknowledgements of each partition."""

    def measure(system: System, scale: Scale) -> Figures:
        log = log_of(name)
        system.make_log(log, PARTITIONS, 3)
        load = {"load": "survive", "log": log, "partitions": PARTITIONS}
        seconds = max(scale.seconds, 15.0)

        def kill() -> None:
            time.sleep(KILL_AFTER_S)
            system.kill(1)

        return run(system, {**load, "seconds": seconds}, kill)[0]

    return Row(name=name, measure=measure, shown=("worst_s", "median_s"), systems=PEERS, fresh=True)


def catches_up(name: str) -> Row:
    """An empty replica copies, beside a producer of single records."""

    def measure(system: System, scale: Scale) -> Figures:
        assert isinstance(system, KafkaSystem)
        log, live = f"{log_of(name)}-copied", log_of(name)
        megabytes = scale.megabytes * 3
        catch_up.make_log(system, log)
        fill = {"load": "write", "log": log, "record_bytes": 1000}
        run(system, {**fill, "megabytes": megabytes, "warm_megabytes": 1})
        system.make_log(live, PARTITIONS, 3)
        load = {"load": "acks", "log": live, "partitions": PARTITIONS, "record_bytes": 1000}
        load |= {"rate": 200, "seconds": scale.seconds, "warm_s": scale.seconds / 2}
        alone, _ = run(system, load)
        took_s = []
        beside, use = run(system, load, lambda: took_s.append(catch_up.copy(system, log)))
        return {
            "mb_per_s": megabytes / took_s[0],
            "p99_ratio": beside["p99_ms"] / alone["p99_ms"],
            "p99_alone_ms": alone["p99_ms"],
            "p99_ms": beside["p99_ms"],
            **of_use(use, {}),
        }

    shown = ("mb_per_s", "p99_ratio", "p99_ms")
    return Row(name=name, measure=measure, shown=shown, systems=KAFKA_CLIENTS, fresh=True)


def starts(name: str) -> Row:
    """From the start of three brokers to the first acknowledged record."""

    def measure(system: System, _: Scale) -> Figures:
        began = time.perf_counter()
        system.start()
        ready = time.perf_counter()
        system.make_log(log_of(name), 1, 3)
        system.first_ack(log_of(name))
        return {"seconds": time.perf_counter() - began, "ready_s": ready - began}

    return Row(name=name, measure=measure, shown=("seconds",), starts=True, fresh=True)


ROWS = (
    acks("ack at 1,000/s, 12 partitions", rate=1_000),
    acks("ack at 100/s, 12 partitions", rate=100),
    acks("RF 1, ack at 1,000/s", rate=1_000, replicas=1),
    writes("1 KB records, 128 KB batches"),
    writes("1 KB records, 128 KB batches, idempotent", KAFKA_CLIENTS, **IDEMPOTENT),
    writes("1 KB records, 16 KB batches", KAFKA_PROTOCOL, batch_bytes=16384, share=0.5),
    writes(
        "1 KB records, 16 KB batches, idempotent",
        KAFKA_CLIENTS,
        batch_bytes=16384,
        share=0.2,
        **IDEMPOTENT,
    ),
    writes("100-byte records, 128 KB batches", record_bytes=100, share=0.3),
    reads("consume from the start", group=False),
    reads("consume in a group", group=True),
    java("Kafka's producer, plaintext", tls=False),
    java("Kafka's producer, TLS on every port", tls=True),
    *(crowded(count) for count in (100, 1_000, 5_000)),
    *(spread_out(partitions) for partitions in (100, 1_000, 4_000)),
    sessionless(900),
    killed("SIGKILL of a broker, gap between acks"),
    catches_up("an empty replica catches up"),
    starts("start of three brokers, to the first ack"),
    idle("idle, no topic", partitions=0, after_s=5),
    idle("idle, 2,000 partitions", partitions=2_000, after_s=40, systems=KAFKA_CLIENTS),
    idle("2,000 partitions just made", partitions=2_000, after_s=0, systems=KAFKA_CLIENTS),
)


def of_name(name: str) -> list[Row]:
    """Return the rows with the name, or else those that contain it."""
    exact = [row for row in ROWS if row.name == name]
    return exact or [row for row in ROWS if name in row.name]
