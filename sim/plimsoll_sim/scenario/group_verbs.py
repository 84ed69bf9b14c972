"""Verbs for groups: commit an offset, ask for it, delete a group, at the group's coordinator."""

from __future__ import annotations

from typing import Any

from plimsoll_core.errors import Code
from plimsoll_core.ids import TopicPartition
from plimsoll_sim.hosts.client_calls import Lost
from plimsoll_sim.hosts.committers import commit_values, delete_offset_values, fetch_offset_values
from plimsoll_sim.scenario.cluster_verbs import Verb
from plimsoll_sim.scenario.script import Words, microseconds, whole
from plimsoll_sim.scenario.scripted_clients import Actor
from plimsoll_sim.scenario.stage import CLIENT, Stage
from plimsoll_wire.api_versions import ApiKey

PATIENCE = "8s"
FIND_US = 20_000_000


async def _find(actor: Actor, host: str, group: str) -> list[str]:
    """The coordinator's host, as this broker knows it."""
    try:
        connection = await actor.connected(host)
        values = {"key_type": 0, "coordinator_keys": [group]}
        reply = await actor.ask(connection, ApiKey.FIND_COORDINATOR, 4, values)
    except Lost:
        return []
    (found,) = reply.coordinators
    return [] if int(found.error_code) else [str(found.host)]


def host_of(stage: Stage, actor: Actor, words: Words, group: str) -> str:
    """The broker that is named, or the coordinator, once there is one."""
    named = words.option("to", "")
    if named:
        return stage.broker(named).name
    found: list[str] = []

    def known() -> bool:
        for host in stage.world.brokers.values():
            if host.running and not found:
                found.extend(stage.ask(actor, _find(actor, host.name, group), 500_000))
        return bool(found)

    stage.until(known, "the group has a coordinator", FIND_US)
    return found[0]


async def _commit(actor: Actor, host: str, values: dict[str, Any], offset: int) -> list[str]:
    group = values["group_id"]
    groups = actor.world.groups
    groups.committing(group, offset)
    try:
        connection = await actor.connected(host)
        # Only older requests say how long an offset is to be kept.
        version = 4 if "retention_time" in values else 8
        reply = await actor.ask(connection, ApiKey.OFFSET_COMMIT, version, values)
    except Lost as error:
        return [f"{group}: {error}, it may or may not be committed"]
    code = int(reply.topics[0].partitions[0].error_code)
    if code:
        return [f"{group}: refused, {Code(code).name}"]
    groups.committed(group, offset)
    return [f"{group}: {offset} is committed"]


def commit(stage: Stage, words: Words) -> list[str]:
    """commit g 5: a client commits that group g has come to 5 in orders-0 (or `of=`; in
    `partitions=2`, from 0 on), at the group's coordinator or `to=2`, to be kept for as long as the
    cluster keeps offsets or `kept=60s`.  Tells what was answered within `wait=8s`."""
    kept = words.option("kept", "")
    at, patience = stage.at(words.option("of", "")), words.option("wait", PATIENCE)
    count = words.number("partitions", 0)
    group, offset = words.take("a group"), whole(words.take("an offset"))
    actor = stage.actor(words.option("by", CLIENT))
    host = host_of(stage, actor, words, group)
    words.end()
    partitions = range(count) if count else [at.partition]
    values = commit_values(group, at.topic, partitions, offset)
    if kept:
        values["retention_time"] = microseconds(kept) // 1_000
    return stage.ask(actor, _commit(actor, host, values, offset), microseconds(patience))


async def _offset(actor: Actor, host: str, group: str, at: TopicPartition) -> list[str]:
    groups = actor.world.groups
    asked = groups.asks(group, host)
    try:
        connection = await actor.connected(host)
        values = fetch_offset_values(group, at.topic, at.partition)
        reply = await actor.ask(connection, ApiKey.OFFSET_FETCH, 7, values)
    except Lost as error:
        return [f"{group}: {error}"]
    if int(reply.error_code):
        return [f"{group}: refused, {Code(int(reply.error_code)).name}"]
    offset = int(reply.topics[0].partitions[0].committed_offset)
    groups.fetched(group, asked, offset)
    return [f"{group}: at {offset}" if offset >= 0 else f"{group}: nothing is committed"]


def offset(stage: Stage, words: Words) -> list[str]:
    """offset g: what group g has committed for orders-0 (or `of=`), asked of its coordinator or
    `to=2`."""
    at, patience = stage.at(words.option("of", "")), words.option("wait", PATIENCE)
    group = words.take("a group")
    actor = stage.actor(words.option("by", CLIENT))
    host = host_of(stage, actor, words, group)
    words.end()
    return stage.ask(actor, _offset(actor, host, group, at), microseconds(patience))


async def _forget(actor: Actor, host: str, group: str, at: TopicPartition) -> list[str]:
    groups = actor.world.groups
    groups.committing(group, None)
    try:
        connection = await actor.connected(host)
        values = delete_offset_values(group, at.topic, at.partition)
        reply = await actor.ask(connection, ApiKey.OFFSET_DELETE, 0, values)
    except Lost as error:
        return [f"{group}: {error}, it may or may not be forgotten"]
    if int(reply.error_code):
        return [f"{group}: refused, {Code(int(reply.error_code)).name}"]
    groups.committed(group, None)
    return [f"{group}: its offset is forgotten"]


def forget(stage: Stage, words: Words) -> list[str]:
    """forget g: a client deletes what group g committed for orders-0 (OffsetDelete)."""
    at, patience = stage.at(words.option("of", "")), words.option("wait", PATIENCE)
    group = words.take("a group")
    actor = stage.actor(words.option("by", CLIENT))
    host = host_of(stage, actor, words, group)
    words.end()
    return stage.ask(actor, _forget(actor, host, group, at), microseconds(patience))


GROUP_VERBS: dict[str, Verb] = {"commit": commit, "offset": offset, "forget": forget}
