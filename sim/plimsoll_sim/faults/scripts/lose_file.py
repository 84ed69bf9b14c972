"""Removes parts of a log while its broker is down: its first files, one file, or whole batches at
its end.

The remaining files are consistent. After a clean stop, the stop's marker shows that there was more.
After any other end the log is truncated at the first gap. If its first files are missing, only the
stored log start shows it (docs/design/005-complete-logs.md).
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

from plimsoll_core.ids import TopicPartition
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.environment.simulated_disk import FileNode, Folder
from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import DATA, BrokerHost
from plimsoll_wire.batches import BatchError, iter_headers


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = observed_partitions.running_replica(context.world, rng)
    if found is None:
        return None
    p, host = found
    at = TopicPartition(TOPIC, p.index)
    context.run(_script(context, host, at, random.Random(rng.random())))
    return f"{host.name} {at}"


def _script(
    context: FaultContext, host: BrokerHost, at: TopicPartition, rng: random.Random
) -> Script:
    others = [one for one in context.world.brokers.values() if one is not host and one.running]
    if rng.random() < 0.5:  # it may be the first to come back of those that may lead
        for one in others:
            one.stop()
            yield pause(rng.randint(1, 300))
    clean = rng.random() < 0.5
    if clean:
        host.stop()
        yield Wait(lambda: not host.running, 6_000)
    else:
        host.kill()
    _lose(context, host, at, rng, clean=clean)
    yield pause(rng.randint(1, 4_000))
    for one in others:
        context.world.start_broker(one)


def _lose(
    context: FaultContext, host: BrokerHost, at: TopicPartition, rng: random.Random, *, clean: bool
) -> None:
    if not host.running:
        _damage(context, host, at, rng, clean=clean)
        context.world.start_broker(host)


def _damage(
    context: FaultContext, host: BrokerHost, at: TopicPartition, rng: random.Random, *, clean: bool
) -> None:
    folder = host.volume.find(Path(DATA) / f"{at}")
    if not isinstance(folder, Folder):
        return
    names = sorted(name for name in folder.entries if name.endswith(".log"))
    kinds = ["batches", "all"] if clean else []
    if names[1:]:
        kinds += ["last", "first"] if clean else ["first"]
    if not names or not kinds:
        return
    context.world.ghost.lossy(host.id, [at])
    host.damaged = True
    match rng.choice(kinds):
        case "first":
            ghost = context.world.ghost.by_name.get(at)
            if ghost is not None and host.id in ghost.copies:
                # It may now begin above all that is committed, and so may its high watermark.
                ghost.copies[host.id].suspect = True
            for name in names[: rng.randint(1, len(names) - 1)]:
                del folder.entries[name]
        case "batches":
            node = folder.entries[names[-1]]
            assert isinstance(node, FileNode)
            sizes = _sizes(bytes(node.data))
            node.truncate(sum(sizes[: rng.randint(0, max(len(sizes) - 1, 0))]))
            node.sync()
        case "last":
            del folder.entries[names[-1]]
        case _:
            folder.entries.clear()


def _sizes(data: bytes) -> list[int]:
    """Return the sizes in bytes of the whole batches in a file. The file may end in a batch that a
    power cut tore."""
    sizes: list[int] = []
    with suppress(BatchError):
        # Those before the torn one stay.
        sizes.extend(header.length for header in iter_headers(data))
    return sizes
