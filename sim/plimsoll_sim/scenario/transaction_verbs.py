"""Commands of scenarios for transactions: append batches and markers at a broker, and read as a
consumer of committed transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.replication.transactional_appends import (
    append_batch,
    append_marker,
)
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.replica.replica_values import Append, Duplicate
from plimsoll_sim.hosts.client_calls import Lost, ProducerIdAndEpoch, Sent, fetch_values, sealed
from plimsoll_sim.hosts.committed_readers import judged
from plimsoll_sim.scenario.cluster_verbs import Verb
from plimsoll_sim.scenario.script import BadScript, Words, whole
from plimsoll_sim.scenario.scripted_clients import Actor
from plimsoll_sim.scenario.stage import CLIENT, Stage
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import TRANSACTIONAL
from plimsoll_wire.control_records import EndMarker
from plimsoll_wire.fetch import READ_COMMITTED

READ_US = 1_000_000
KINDS = {"commit": True, "abort": False}
_Placed = Append | Duplicate | Code


class _Target(NamedTuple):
    """The broker that a command names, and its replica."""

    call: Callable[[Callable[[], _Placed]], _Placed]
    manager: ReplicaManager
    hosted: Hosted


def _place(stage: Stage, words: Words) -> _Target:
    at, name = stage.at(words.option("of", "")), words.option("to", "")
    leader = stage.partition(at).leader
    host = stage.broker(name or str(leader))
    key, process, manager = stage.key(at), host.process, host.manager
    hosted = None if key is None else host.hosted(key)
    if process is None or manager is None or hosted is None:
        raise BadScript(f"broker {host.id} does not have {at}")
    return _Target(process.call, manager, hosted)


def _told(placed: _Placed) -> list[str]:
    if isinstance(placed, Code):
        return [f"refused, {placed.name}"]
    return [f"at {placed.base_offset}"]


def transact(stage: Stage, words: Words) -> list[str]:
    """transact a*2 by=7 sequence=0 epoch=0: append a batch of producer 7's transaction, inside the
    leader or `to=2`, to orders-0 or `of=`."""
    place = _place(stage, words)
    pid, epoch = words.number("by", 7), words.number("epoch", 0)
    ident, _, records = words.take("a batch").partition("*")
    sent = Sent(ident.encode(), words.number("sequence", 0), whole(records or "1"), ":" in ident)
    words.end()

    def append() -> _Placed:
        batch = bytearray(sealed(sent, ProducerIdAndEpoch(pid, epoch), TRANSACTIONAL))
        return append_batch(place.manager, place.hosted, batch)

    return _told(place.call(append))


def end(stage: Stage, words: Words) -> list[str]:
    """end commit by=7 epoch=0: append the marker that commits (or `abort`s) producer 7's
    transaction, as `transact` does."""
    place = _place(stage, words)
    producer = ProducerLife(words.number("by", 7), words.number("epoch", 0))
    kind = words.take("commit or abort")
    words.end()
    if kind not in KINDS:
        raise BadScript("a transaction ends with commit or abort")

    def append() -> _Placed:
        marker, now_ms = EndMarker(KINDS[kind], 0), time.time_ns() // 1_000_000
        return append_marker(place.manager, place.hosted, producer, marker, now_ms)

    return _told(place.call(append))


def committed(stage: Stage, words: Words) -> list[str]:
    """committed offset=0: print what a consumer of committed transactions reads from this offset
    on, from the leader or `to=2`, and the last stable offset."""
    at, actor = stage.at(words.option("of", "")), stage.actor(words.option("by", CLIENT))
    name, offset = words.option("to", ""), words.number("offset", 0)
    words.end()
    host = stage.broker(name).name if name else stage.leader(at)
    return stage.ask(actor, _read(stage, actor, at, host, offset), READ_US)


async def _read(
    stage: Stage, actor: Actor, at: TopicPartition, host: str, offset: int
) -> list[str]:
    values = {**fetch_values(at, offset, -1, 0), "isolation_level": READ_COMMITTED}
    try:
        connection = await actor.connected(host)
        reply = await actor.ask(connection, ApiKey.FETCH, 12, values)
    except Lost as error:
        return [str(error)]
    one = reply.responses[0].partitions[0]
    if int(one.error_code):
        return [Code(int(one.error_code)).name]
    seen: list[str] = []
    for each in judged(one):
        if not each.ident:
            continue
        base, told = each.header.base_offset, stage.world.transactions
        if each.header.is_transactional:
            (told.left_out if each.left_out else told.shown)(at, base, each.ident)
        if not each.left_out:
            seen.append(f"{each.ident.decode()}@{base}")
    shown = " ".join(seen) or "nothing"
    return [f"{shown}  lso {int(one.last_stable_offset)} hw {int(one.high_watermark)}"]


TRANSACTION_VERBS: dict[str, Verb] = {"transact": transact, "end": end, "committed": committed}
