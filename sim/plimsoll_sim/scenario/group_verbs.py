"""Commands of scenarios for groups and their members: commit or fetch an offset, delete a group,
join, die.
"""

from __future__ import annotations

from typing import Any

from plimsoll_core.errors import Code
from plimsoll_core.ids import TopicPartition
from plimsoll_sim.hosts.client_calls import Lost
from plimsoll_sim.hosts.committers import (
    commit_rows,
    commit_values,
    delete_offset_values,
    fetch_offset_values,
)
from plimsoll_sim.hosts.group_members import (
    REBALANCE_MS,
    SESSION_MS,
    Fellows,
    GroupMember,
    MemberKind,
)
from plimsoll_sim.scenario.cluster_verbs import Verb
from plimsoll_sim.scenario.script import BadScript, Words, microseconds, whole
from plimsoll_sim.scenario.scripted_clients import Actor
from plimsoll_sim.scenario.stage import CLIENT, Stage
from plimsoll_wire.api_versions import ApiKey

PATIENCE = "8s"
FIND_US = 20_000_000


async def _find(actor: Actor, host: str, group: str) -> list[str]:
    """Return the coordinator's host, as this broker knows it, in a list; [] if it does not
    answer."""
    try:
        connection = await actor.connected(host)
        values = {"key_type": 0, "coordinator_keys": [group]}
        reply = await actor.ask(connection, ApiKey.FIND_COORDINATOR, 4, values)
    except Lost:
        return []
    (found,) = reply.coordinators
    return [] if int(found.error_code) else [str(found.host)]


def host_of(stage: Stage, actor: Actor, words: Words, group: str) -> str:
    """Return the broker that the command names, else the group's coordinator, once there is one."""
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
    """commit g 5: a client commits offset 5 of orders-0 (or `of=`; in `partitions=2`, from 0 on)
    for group g, at the group's coordinator or `to=2`. The offset is kept for as long as the cluster
    keeps offsets, or `kept=60s`. Prints the answer if it comes within `wait=8s`."""
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


async def _offset(
    actor: Actor, host: str, group: str, at: TopicPartition, *, stable: bool
) -> list[str]:
    groups = actor.world.groups
    asked = groups.asks(group, host)
    try:
        connection = await actor.connected(host)
        values = fetch_offset_values(group, at.topic, at.partition) | {"require_stable": stable}
        reply = await actor.ask(connection, ApiKey.OFFSET_FETCH, 7, values)
    except Lost as error:
        return [f"{group}: {error}"]
    if int(reply.error_code):
        return [f"{group}: refused, {Code(int(reply.error_code)).name}"]
    row = reply.topics[0].partitions[0]
    if int(row.error_code):
        return [f"{group}: refused, {Code(int(row.error_code)).name}"]
    offset = int(row.committed_offset)
    groups.fetched(group, asked, offset)
    return [f"{group}: at {offset}" if offset >= 0 else f"{group}: nothing is committed"]


def offset(stage: Stage, words: Words) -> list[str]:
    """offset g: print the offset that group g has committed for orders-0 (or `of=`), as its
    coordinator or `to=2` answers; `stable=yes`: only if no open transaction may replace it."""
    at, patience = stage.at(words.option("of", "")), words.option("wait", PATIENCE)
    stable = words.option("stable", "no") == "yes"
    group = words.take("a group")
    actor = stage.actor(words.option("by", CLIENT))
    host = host_of(stage, actor, words, group)
    words.end()
    asking = _offset(actor, host, group, at, stable=stable)
    return stage.ask(actor, asking, microseconds(patience))


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
    """forget g: a client deletes the offset that group g has committed for orders-0
    (OffsetDelete)."""
    at, patience = stage.at(words.option("of", "")), words.option("wait", PATIENCE)
    group = words.take("a group")
    actor = stage.actor(words.option("by", CLIENT))
    host = host_of(stage, actor, words, group)
    words.end()
    return stage.ask(actor, _forget(actor, host, group, at), microseconds(patience))


GROUP_VERBS: dict[str, Verb] = {"commit": commit, "offset": offset, "forget": forget}


# --- members --------------------------------------------------------------------------------------

SHARED_US = 60_000_000
PATIENCE_US = 8_000_000


def _fellows(stage: Stage, group: str) -> Fellows:
    return stage.fellows.setdefault(group, Fellows())


def member(stage: Stage, words: Words) -> None:
    """member a g kind=eager instance=-: start a member of group g, which stays until it dies;
    `kind` may be cooperative, `instance` makes it a static one."""
    name, group = words.take("a member"), words.take("a group")
    kind, instance = words.option("kind", "eager"), words.option("instance", "-")
    words.end()
    if kind not in ("eager", "cooperative"):
        raise BadScript(f"unknown kind of member: {kind}")
    stage.world.start_member(
        name,
        MemberKind(
            group=group,
            fellows=_fellows(stage, group),
            cooperative=kind == "cooperative",
            instance=None if instance == "-" else instance,
            restless=False,
        ),
    )


def dies(stage: Stage, words: Words) -> None:
    """dies a: end the member's process without a request; `closes`: its kernel closes its
    connections."""
    name, closes = words.take("a member"), words.flag("closes")
    words.end()
    for fellows in stage.fellows.values():
        for one in list(fellows.members):
            if one.name == name:
                fellows.members.remove(one)
                stage.world.clients.remove(one)
                for process in stage.world.client_processes:
                    if process.name == name:
                        process.die()
                        if closes:
                            stage.world.network.process_died(process)
                return
    raise BadScript(f"there is no member {name}")


def members(stage: Stage, words: Words) -> list[str]:
    """members g: print the last answer that each living member of group g got."""
    group = words.take("a group")
    words.end()
    return [one.told() for one in _fellows(stage, group).members]


def shared(stage: Stage, words: Words) -> list[str]:
    """shared g: wait until the living members of group g own all parts, in one generation; then
    print as `members`."""
    group = words.take("a group")
    words.end()
    fellows = _fellows(stage, group)
    stage.until(lambda: fellows.shared_out, f"{group} has shared out", SHARED_US)
    return [one.told() for one in fellows.members]


def _member(stage: Stage, name: str) -> GroupMember:
    for fellows in stage.fellows.values():
        for one in fellows.members:
            if one.name == name:
                return one
    raise BadScript(f"there is no member {name}")


async def _ask(actor: Actor, host: str, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    return await actor.ask(await actor.connected(host), key, version, values)


def commit_as(stage: Stage, words: Words) -> list[str]:
    """commit-as a 7 generation=1: a client sends the commit that member a would send for orders-0
    in that generation, to the coordinator of its group."""
    one, offset = _member(stage, words.take("a member")), whole(words.take("an offset"))
    generation, group = words.number("generation", 0), one.kind.group
    actor, groups = stage.actor(CLIENT), stage.world.groups
    host = host_of(stage, actor, words, group)
    words.end()
    values = {
        **commit_values(group, one.at.topic, [], offset),
        "generation_id_or_member_epoch": generation,
        "member_id": one.member_id,
        "group_instance_id": one.kind.instance,
    }
    rows = commit_rows([one.at.partition], offset, f"@{generation}")
    values["topics"] = [{"name": one.at.topic, "partitions": rows}]

    async def work() -> list[str]:
        groups.committing(group, offset)
        reply = await _ask(actor, host, ApiKey.OFFSET_COMMIT, 8, values)
        code = Code(int(reply.topics[0].partitions[0].error_code))
        if code is Code.NONE:
            groups.committed(group, offset)
            return [f"{group}: {offset} is committed"]
        return [f"{group}: refused, {code.name}"]

    return stage.ask(actor, work(), PATIENCE_US)


def pending(stage: Stage, words: Words) -> list[str]:
    """pending g: a client asks to join group g, gets a member id, and does not come back with
    it."""
    group = words.take("a group")
    actor = stage.actor(CLIENT)
    host = host_of(stage, actor, words, group)
    words.end()
    values = {
        "group_id": group,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": REBALANCE_MS,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"0/"}],
        "reason": None,
    }

    async def work() -> list[str]:
        reply = await _ask(actor, host, ApiKey.JOIN_GROUP, 9, values)
        return [f"{group}: {Code(int(reply.error_code)).name}"]

    return stage.ask(actor, work(), PATIENCE_US)


def leaves(stage: Stage, words: Words) -> list[str]:
    """leaves a: member a leaves its group, by a client's request in its name, and its process
    ends."""
    name = words.take("a member")
    one = _member(stage, name)
    actor = stage.actor(CLIENT)
    host = host_of(stage, actor, words, one.kind.group)
    words.end()
    member_row = {"member_id": one.member_id, "group_instance_id": None, "reason": None}
    values = {"group_id": one.kind.group, "members": [member_row]}
    dies(stage, Words(f"dies {name}"))

    async def work() -> list[str]:
        reply = await _ask(actor, host, ApiKey.LEAVE_GROUP, 5, values)
        return [f"{name} leaves: {Code(int(reply.members[0].error_code)).name}"]

    return stage.ask(actor, work(), PATIENCE_US)


MEMBER_VERBS: dict[str, Verb] = {
    "member": member,
    "dies": dies,
    "members": members,
    "shared": shared,
    "commit-as": commit_as,
    "pending": pending,
    "leaves": leaves,
}
