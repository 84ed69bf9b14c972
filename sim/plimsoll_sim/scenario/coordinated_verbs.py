"""Commands of scenarios for transactional producers: what a real one asks of its coordinator and of
the leaders of its partitions, one request at a time."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_sim.hosts.client_calls import (
    Lost,
    ProducerIdAndEpoch,
    Sent,
    produce_values,
    sealed,
)
from plimsoll_sim.hosts.committers import commit_rows
from plimsoll_sim.scenario.cluster_verbs import Verb
from plimsoll_sim.scenario.script import BadScript, Words, microseconds, whole
from plimsoll_sim.scenario.scripted_clients import Actor, Instance
from plimsoll_sim.scenario.stage import CLIENT, Stage
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import TRANSACTIONAL

PATIENCE = "8s"
AGAIN_S = 0.1
_AGAIN = (
    Code.CONCURRENT_TRANSACTIONS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.NOT_COORDINATOR,
)


def _instance(stage: Stage, actor: Actor) -> Instance:
    found = stage.instances.get(actor.name)
    if found is None:
        raise BadScript(f"{actor.name} has not begun: `init`")
    return found


async def _coordinator(stage: Stage, actor: Actor, name: str, kind: int = 1) -> str:
    """Return the host of the coordinator of a transactional id, or of a group (`kind` 0)."""
    host = next(one.name for one in stage.world.brokers.values() if one.serving)
    values = {"key_type": kind, "coordinator_keys": [name]}
    reply = await actor.ask(await actor.connected(host), ApiKey.FIND_COORDINATOR, 4, values)
    (found,) = reply.coordinators
    if int(found.error_code):
        raise Lost(Code(int(found.error_code)).name)
    return str(found.host)


class _ToCoordinator(NamedTuple):
    """A request to a coordinator."""

    key: ApiKey
    version: int
    values: dict[str, Any]


async def _ask(stage: Stage, actor: Actor, name: str, asked: _ToCoordinator) -> Any:
    """Ask the coordinator again and again, until it answers something else than to ask again."""
    while True:
        try:
            connection = await actor.connected(await _coordinator(stage, actor, name))
            reply = await actor.ask(connection, *asked)
            if _code_of(reply) not in _AGAIN:
                return reply
        except Lost:
            pass
        await asyncio.sleep(AGAIN_S)


def _code_of(reply: Any) -> Code:
    rows = getattr(reply, "results_by_topic_v3_and_below", None)
    if rows:
        return Code(int(rows[0].results_by_partition[0].partition_error_code))
    return Code(int(reply.error_code))


def _told(name: str, code: Code, what: str) -> list[str]:
    return [f"{name}: {what}" if code is Code.NONE else f"{name}: refused, {code.name}"]


def init(stage: Stage, words: Words) -> list[str]:
    """init till by=client timeout=60s: the client becomes the newest instance of transactional id
    till. It asks until it is told."""
    actor, timeout = stage.actor(words.option("by", CLIENT)), words.option("timeout", "60s")
    patience = microseconds(words.option("wait", PATIENCE))
    name = words.take("a transactional id")
    words.end()
    values = {
        "transactional_id": name,
        "transaction_timeout": microseconds(timeout) // 1_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }

    async def ask() -> list[str]:
        given = stage.world.coordinated.given()
        reply = await _ask(stage, actor, name, _ToCoordinator(ApiKey.INIT_PRODUCER_ID, 4, values))
        life = ProducerLife(int(reply.producer_id), int(reply.producer_epoch))
        code = _code_of(reply)
        if code is Code.NONE:
            stage.world.coordinated.initialized(name, life, given)
            stage.instances[actor.name] = Instance(name, life)
        return _told(name, code, f"producer {life.producer_id}, epoch {life.epoch}")

    return stage.ask(actor, ask(), patience)


def add(stage: Stage, words: Words) -> list[str]:
    """add 0,1 by=client: add these partitions of orders to the client's transaction."""
    actor = stage.actor(words.option("by", CLIENT))
    patience = microseconds(words.option("wait", PATIENCE))
    indexes = [whole(one) for one in words.take("partitions").split(",")]
    words.end()
    one = _instance(stage, actor)
    values = {
        "v3_and_below_transactional_id": one.name,
        "v3_and_below_producer_id": one.life.producer_id,
        "v3_and_below_producer_epoch": one.life.epoch,
        "v3_and_below_topics": [{"name": "orders", "partitions": indexes}],
    }

    async def ask() -> list[str]:
        reply = await _ask(
            stage, actor, one.name, _ToCoordinator(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values)
        )
        return _told(one.name, _code_of(reply), "added")

    return stage.ask(actor, ask(), patience)


def send(stage: Stage, words: Words) -> list[str]:
    """send a*2 of=orders-0 by=client: the client writes a batch of its transaction to the leader,
    once."""
    at, actor = stage.at(words.option("of", "")), stage.actor(words.option("by", CLIENT))
    patience = microseconds(words.option("wait", PATIENCE))
    ident, _, records = words.take("a batch").partition("*")
    words.end()
    one = _instance(stage, actor)
    sequence = one.sequences.get(at, 0)
    sent = Sent(ident.encode(), sequence, whole(records or "1"), ":" in ident)
    batch = sealed(sent, ProducerIdAndEpoch(*one.life), TRANSACTIONAL)
    values = produce_values(at, -1, batch)
    values["transactional_id"] = one.name

    async def ask() -> list[str]:
        stage.world.witness.sent(at, sent.ident)
        connection = await actor.connected(stage.leader(at))
        reply = await actor.ask(connection, ApiKey.PRODUCE, 9, values)
        row = reply.responses[0].partition_responses[0]
        code = Code(int(row.error_code))
        if code is Code.NONE:
            one.sequences[at] = sequence + sent.records
        return _told(ident, code, f"acknowledged at {int(row.base_offset)}")

    return stage.ask(actor, ask(), patience)


def finish(stage: Stage, words: Words) -> list[str]:
    """finish commit by=client: the client commits (or `abort`s) its transaction. It asks until it
    is told."""
    actor = stage.actor(words.option("by", CLIENT))
    patience = microseconds(words.option("wait", PATIENCE))
    kind = words.take("commit or abort")
    words.end()
    if kind not in ("commit", "abort"):
        raise BadScript("a transaction finishes with commit or abort")
    one = _instance(stage, actor)
    values = {
        "transactional_id": one.name,
        "producer_id": one.life.producer_id,
        "producer_epoch": one.life.epoch,
        "committed": kind == "commit",
    }

    async def ask() -> list[str]:
        reply = await _ask(stage, actor, one.name, _ToCoordinator(ApiKey.END_TXN, 3, values))
        return _told(one.name, _code_of(reply), f"{kind} is decided")

    return stage.ask(actor, ask(), patience)


def position(stage: Stage, words: Words) -> list[str]:
    """position g 5 by=client: the client commits offset 5 of orders-0 for group g in its
    transaction; `add=no`: without adding the group to it first. It asks until it is told."""
    adds = words.option("add", "yes") == "yes"
    actor = stage.actor(words.option("by", CLIENT))
    patience = microseconds(words.option("wait", PATIENCE))
    group, offset = words.take("a group"), whole(words.take("an offset"))
    words.end()
    one = _instance(stage, actor)
    values: dict[str, Any] = {
        "transactional_id": one.name,
        "producer_id": one.life.producer_id,
        "producer_epoch": one.life.epoch,
        "group_id": group,
    }
    no_member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    topics = [{"name": "orders", "partitions": commit_rows([0], offset)}]

    stage.world.groups.committing(group, offset)

    async def ask() -> list[str]:
        added = _ToCoordinator(ApiKey.ADD_OFFSETS_TO_TXN, 3, values)
        code = _code_of(await _ask(stage, actor, one.name, added)) if adds else Code.NONE
        if code is Code.NONE:
            code = await _to_group(actor, stage, values | no_member | {"topics": topics})
        return _told(one.name, code, f"{group} at {offset} is pending")

    return stage.ask(actor, ask(), patience)


async def _to_group(actor: Actor, stage: Stage, values: dict[str, Any]) -> Code:
    """Commit offsets in a transaction; ask until the group's coordinator answers something else
    than to ask again."""
    while True:
        try:
            host = await _coordinator(stage, actor, values["group_id"], kind=0)
            connection = await actor.connected(host)
            reply = await actor.ask(connection, ApiKey.TXN_OFFSET_COMMIT, 3, values)
            code = Code(int(reply.topics[0].partitions[0].error_code))
            if code not in _AGAIN:
                return code
        except Lost:
            pass
        await asyncio.sleep(AGAIN_S)


COORDINATED_VERBS: dict[str, Verb] = {
    "init": init,
    "add": add,
    "send": send,
    "finish": finish,
    "position": position,
}
