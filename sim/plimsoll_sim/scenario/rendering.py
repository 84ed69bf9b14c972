"""Renders a stage as text: the committed state, and each broker's state and metadata.

Conditions compare the values of `partition_fields` and `broker_fields`; the texts are made from
them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from plimsoll_broker.node.broker import BrokerState
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.storage.log import Log
from plimsoll_core.cluster.model import Partition
from plimsoll_core.cluster.records import ControllerChanged, PartitionsChanged
from plimsoll_core.ids import BrokerId, TopicPartition
from plimsoll_core.replica.leader import proposal_in_flight
from plimsoll_sim.environment.simulated_disk import Folder
from plimsoll_sim.hosts.brokers import DATA, BrokerHost
from plimsoll_sim.hosts.payload import ident_of, is_coordinators, is_marker, records_in
from plimsoll_sim.oracle.partition_ghost import CommittedBatch
from plimsoll_sim.scenario.stage import Stage
from plimsoll_wire.batches import BatchError, BatchHeader, iter_headers

NONE = "-"


def ids(members: Iterable[int] | None) -> str:
    return ",".join(map(str, members or ())) or NONE


# --- what is committed ----------------------------------------------------------------------------


def partition_fields(p: Partition) -> dict[str, str]:
    return {
        "leader": NONE if p.leader is None else str(p.leader),
        "LE": str(p.leader_epoch),
        "PE": str(p.partition_epoch),
        "isr": ids(p.isr),
        "elr": ids(p.elr),
        "lkelr": ids(p.last_known_elr),
        "min_isr": str(p.min_isr),
        "replicas": ids(p.replicas),
        "adding": ids(p.adding),
        "removing": ids(p.removing),
        "recovery": p.recovery.value,
    }


def partition(stage: Stage, at: TopicPartition) -> list[str]:
    p = stage.partition(at)
    fields = partition_fields(p)
    shown = ["leader", "LE", "PE", "isr", "elr", "lkelr"]
    shown += ["replicas", "adding", "removing"] if p.adding or p.removing else []
    text = "  ".join(f"{name} {fields[name]}" for name in shown)
    note = "  recovering" if p.recovery.value == "Recovering" else ""
    return [f"{at}  {text}{note}"]


def changes(stage: Stage, at: TopicPartition) -> list[str]:
    """Return the partition's committed changes since the last call, with their causes."""
    history = stage.world.ghost.history
    key, found = stage.key(at), list[str]()
    for record in history[stage.changes_shown :]:
        if not isinstance(record, PartitionsChanged) or key is None:
            continue
        if record.topic_id == key.topic_id and any(a <= key.index <= b for a, b in record.ranges):
            found.append(_change(record))
    stage.changes_shown = len(history)
    return found


def _change(record: PartitionsChanged) -> str:
    parts = ["LE +1"] if record.leader_epoch_step else []
    for name, field in (
        ("leader", "leader"), ("isr", "isr"), ("elr", "elr"), ("lkelr", "last_known_elr"),
        ("min_isr", "min_isr"), ("replicas", "replicas"), ("adding", "adding"),
        ("removing", "removing"),
    ):  # fmt: skip
        value = getattr(record, field)
        if value is msgspec.UNSET:
            continue
        text = ids(value) if isinstance(value, tuple | list) else str(value)
        parts.append(f"{name} {NONE if value is None else text}")
    return f"{'  '.join(parts)}  ({re.sub(r'[0-9]+ ms', '... ms', record.cause)})"


def committed(stage: Stage, at: TopicPartition) -> list[str]:
    """Return the committed log, and the batches that an unclean election removed from it."""
    ghost = stage.world.ghost.by_name[at]
    told = _batches(ghost.committed, None)
    lost = "".join(f"  lost {ident.decode()}" for ident in ghost.lost if ident not in ghost.idents)
    return [f"committed: {told or 'nothing'}{lost}"]


def version(stage: Stage) -> list[str]:
    """Return the finalised metadata version and the pinned one."""
    pinned = stage.world.options.metadata_version
    return [f"metadata version {stage.image.metadata_version}, pinned {pinned or '-'}"]


def operators(stage: Stage) -> list[str]:
    """Return each operator's state: if it leads, else how its last term ended."""
    told: list[str] = []
    for host in stage.world.operators:
        state = "leads" if host.active else "waits"
        if host.process is None or not host.running:
            state = "down"
        elif host.process.paused:
            state = "paused"
        outcome = None if host.active else host.ended
        ended = "" if outcome is None else f", its term ended: {outcome.value}"
        told.append(f"{host.name}  {state}{ended}")
    return told


def terms(stage: Stage) -> list[str]:
    """Return the committed terms: epoch and controller."""
    return [
        f"{record.controller_epoch}  {record.identity}"
        for record in stage.world.ghost.history
        if isinstance(record, ControllerChanged)
    ]


def messages(stage: Stage) -> list[str]:
    """Return the messages that were sent since the last call."""
    told, stage.taps.overheard = stage.taps.overheard, []
    return told


# --- what brokers have ----------------------------------------------------------------------------


def process(host: BrokerHost) -> str:
    if host.process is None or not host.running:
        return "down"
    if host.process.paused:
        return "paused"
    stopping = (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN)
    if host.node is not None and host.node.state in stopping:
        return "stopping"
    return "running" if host.serving else "starting"


def registered(stage: Stage, host: BrokerHost) -> str:
    """Return the broker's committed state."""
    broker = stage.image.brokers.get(BrokerId(host.id))
    if broker is None:
        return "unregistered"
    if broker.fenced:
        return "fenced"
    return "leaving" if broker.shutting_down else "unfenced"


def brokers(stage: Stage) -> list[str]:
    return [
        f"{host.id}  {process(host)}, {registered(stage, host)}"
        for host in stage.world.brokers.values()
    ]


def hosted(stage: Stage, host: BrokerHost, at: TopicPartition) -> Hosted | None:
    key = stage.key(at)
    return None if key is None else host.hosted(key)


def broker_fields(stage: Stage, host: BrokerHost, at: TopicPartition) -> dict[str, str]:
    """Return the broker's fields, and those of its replica of the partition."""
    ready = host.running and host.node is not None and host.node.ready
    fields = {
        "process": process(host),
        "state": registered(stage, host),
        "ready": "yes" if ready else "no",
    }
    found = hosted(stage, host, at)
    if found is None:
        return fields | {"role": "none"}
    replica, p = found.replica, found.replica.partition
    fields |= {
        "role": "leader" if replica.leader is not None else "follower",
        "leader": NONE if p.leader is None else str(p.leader),
        "LE": str(p.leader_epoch),
        "PE": str(p.partition_epoch),
        "min_isr": str(p.min_isr),
        "hw": str(replica.high_watermark),
        "end": str(found.log.log_end_offset),
        "start": str(found.log.log_start_offset),
    }
    source = replica.fetches_from
    fields["fetches"] = NONE if source is None else str(source)
    if replica.failed:
        fields["role"] = "failed"
    if replica.leader is not None:
        isr = replica.leader.isr
        proposal = proposal_in_flight(isr)
        fields["isr"] = ids(isr.committed)
        fields["counts"] = ids(sorted(isr.maximal))
        fields["proposes"] = (
            NONE if proposal is None else ids(sorted(m.broker_id for m in proposal.new_isr))
        )
    return fields


def leader(stage: Stage, host: BrokerHost, at: TopicPartition) -> list[str]:
    """Return a leading broker's view of the partition."""
    found = hosted(stage, host, at)
    state = None if found is None else found.replica.leader
    if state is None:
        return [f"{host.id} does not lead"]
    fields = broker_fields(stage, host, at)
    followers = "  ".join(
        f"{broker_id}@{'?' if one.log_end is None else one.log_end}"
        for broker_id, one in state.followers.items()
    )
    return [
        f"{host.id} leads LE {state.epoch} from {state.start_offset}  hw {fields['hw']}  "
        f"isr {fields['isr']}  counts {fields['counts']}  proposes {fields['proposes']}  "
        f"followers {followers}"
    ]


def epochs(stage: Stage, host: BrokerHost, at: TopicPartition) -> list[str]:
    """Return the start of each leader epoch that the broker remembers."""
    found = hosted(stage, host, at)
    known = [] if found is None else found.log.epochs.entries
    return [f"{host.id}  " + (" ".join(f"LE{epoch}@{start}" for epoch, start in known) or "none")]


def log(stage: Stage, host: BrokerHost, at: TopicPartition) -> list[str]:
    """Return a line with a broker's log. Batches before the bar are committed as far as the broker
    knows."""
    found = hosted(stage, host, at)
    if found is None:
        return [f"{host.id}  {process(host):<8}  {'':12}  {_on_disk(host, at)}".rstrip()]
    fields = broker_fields(stage, host, at)
    batches = _held(found.log)
    start = "" if fields["start"] == "0" else f"from {fields['start']}  "
    role = "paused" if process(host) == "paused" else fields["role"]
    told = _batches(batches, found.replica.high_watermark)
    ends = f"hw {fields['hw']:<2} end {fields['end']:<2}"
    return [f"{host.id}  {role:<8}  {ends:12}  {start}{told}".rstrip()]


def logs(stage: Stage, at: TopicPartition, only: list[str]) -> list[str]:
    hosts = [stage.broker(name) for name in only] or [
        host
        for host in stage.world.brokers.values()
        if host.id in stage.partition(at).replicas or hosted(stage, host, at) is not None
    ]
    return [line for host in hosts for line in log(stage, host, at)]


def files(host: BrokerHost, at: TopicPartition) -> list[str]:
    """Return the names of a partition's segments and producer snapshots, without leading zeros."""
    folder = host.volume.find(Path(DATA) / f"{at}")
    entries = sorted(folder.entries) if isinstance(folder, Folder) else []
    names = [name.lstrip("0") for name in entries if name.endswith((".log", ".snapshot"))]
    found = " ".join(f"0{name}" if name.startswith(".") else name for name in names)
    return [f"{host.id}  {found or 'none'}"]


def _on_disk(host: BrokerHost, at: TopicPartition) -> str:
    """Return the whole batches in the files that exist."""
    folder = Path(DATA) / f"{at}"
    if host.volume.find(folder) is None:
        return "nothing on its disk"
    data = b"".join(bytes(node.data) for _, node in host.volume.nodes(folder, ".log"))
    return "on its disk: " + (_batches(_parsed(data), None) or "empty")


def _held(log: Log) -> list[CommittedBatch]:
    """Return the batches of an open log. One read ends at the end of a segment."""
    found: list[CommittedBatch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = _parsed(log.read(offset, 2**30, log.log_end_offset))
        if not data:
            break
        found += data
        offset = data[-1].last + 1
    return found


def _parsed(data: bytes | memoryview) -> list[CommittedBatch]:
    """Return the batches from the start of the data on, as far as they are complete."""
    found: list[CommittedBatch] = []
    at = 0
    for header in _whole(data):
        ident = ident_of(data, at)
        at += header.length
        producer = (header.producer_id, header.producer_epoch, header.base_sequence)
        found.append(
            CommittedBatch(
                header.base_offset, header.last_offset, header.leader_epoch, ident, producer
            )
        )
    return found


def _whole(data: bytes | memoryview) -> Iterator[BatchHeader]:
    with contextlib.suppress(BatchError):
        yield from iter_headers(data)


def _named(ident: bytes) -> str:
    """Return the name of a batch; for a coordinator's batch, the number of its records; for a
    marker, its kind and producer."""
    if is_marker(ident):
        kind, producer, *_ = ident[1:].decode().split()
        return f"{kind}({producer.partition('.')[0]})"
    return f"[{len(records_in(ident))}]" if is_coordinators(ident) else ident.decode()


def _batches(batches: list[CommittedBatch], high_watermark: int | None) -> str:
    """Return the names of the batches with their offsets, and the leader epoch wherever it
    changes."""
    words: list[str] = []
    epoch, barred = None, high_watermark is None
    for batch in batches:
        if not barred and high_watermark is not None and batch.last >= high_watermark:
            words.append("|")
            barred = True
        if batch.epoch != epoch:
            epoch = batch.epoch
            words.append(f"LE{epoch}")
        offsets = f"{batch.base}" if batch.base == batch.last else f"{batch.base}-{batch.last}"
        words.append(f"{_named(batch.ident)}@{offsets}")
    if not barred and words:
        words.append("|")
    return " ".join(words)
