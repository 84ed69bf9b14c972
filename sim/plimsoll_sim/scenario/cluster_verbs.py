"""Commands of scenarios that set up the cluster, let time pass, and show or check its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import msgspec

from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.ids import BrokerId, TopicPartition
from plimsoll_operator.api.topic import PartitionAssignment, Placement, TopicUncleanRecovery
from plimsoll_operator.kube.resources import TOPICS
from plimsoll_sim.checkers.liveness import is_finished, unfinished
from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.cluster.world import TOPIC, NotAlive
from plimsoll_sim.engine.draws import LatencyUs
from plimsoll_sim.environment.send_buffers import SendBuffers
from plimsoll_sim.scenario import backup_verbs, hour_verbs, rendering, restart_verbs
from plimsoll_sim.scenario.conditions import condition, state
from plimsoll_sim.scenario.script import BadScript, Words, microseconds, whole
from plimsoll_sim.scenario.stage import Stage

Verb = Callable[[Stage, Words], list[str] | None]

OPTIONS = RunOptions(
    brokers=3, first_broker=1, operators=1, partitions=1, replication_factor=3, min_isr=2,
    slots=64, latency_us=LatencyUs(500, 500), lag_time_max_ms=30_000, slice_partitions_max=1_000,
    segment_bytes=1_000_000, flush_messages=None, producers=(), consumers=0, think_ms=(0, 0),
    fault_gap_ms=0, heal_ms=0, faults=(),
    flap_wait_ms_max=Settings().flap_wait_ms_max,
)  # fmt: skip
INSIDE: dict[str, Literal["stated", "unstated", "before"]] = {
    "off": "stated", "required": "stated", "unstated": "unstated", "before": "before",
}  # fmt: skip


def cluster(stage: Stage, words: Words) -> None:
    """cluster brokers=3 operators=1 lag=30s segment=1000000 flush=never slots=64
    on_controller_loss=KeepServing metadata=newest cleaning=off think=0ms: start a cluster with
    brokers from 1 on. `think`: how long clients that act by themselves wait between two requests.
    `lag`: replica.lag.time.max.ms. `flush`: log.flush.interval.messages. `metadata`: the pinned
    metadata version. `cleaning`: on if topics are compacted: then a batch named a:1 has the key a,
    and a: deletes the key; with `offsets=1` __consumer_offsets gets that many partitions. Names
    with a dot are configs of brokers. `inside=required`: brokers and operators show each other
    certificates, and a peer without one gets no answer; `inside=unstated`: the spec of a new
    cluster does not state that; `inside=before`: the cluster has no certificates, and stays so once
    its spec states nothing (`state-inside nothing`). `logins=on`: brokers have a second listener
    that requires a login, and rights are enforced, but not for clients of the first listener;
    `logins=certificates`: a third listener requires client certificates. Their authority is valid
    for years, or for `clients_authority=36s`. `buffers=100/200`: a kernel accepts 100 bytes of a
    connection until its peer has read them, and a broker pauses when 200 more are unsent.
    `pooled=2`: the last two of the brokers are in a second pool, with ids from 100 on.
    `transactions=on`: brokers coordinate transactions, in two partitions. `backup=on`: the
    metadata are backed up into a bucket."""
    flush = words.option("flush", "never")
    metadata = words.option("metadata", "newest")
    offsets = words.number("offsets", 0)
    inside = words.option("inside", "off")
    if inside not in INSIDE:
        raise BadScript(f"unknown inside: {inside}")
    logins = words.option("logins", "off")
    if logins not in ("off", "on", "certificates"):
        raise BadScript(f"unknown logins: {logins}")
    think_ms = microseconds(words.option("think", "0ms")) // 1_000
    buffers = words.option("buffers", "")
    loss = words.option("on_controller_loss", "KeepServing")
    if loss not in ("KeepServing", "StopServing"):
        raise BadScript(f"unknown on_controller_loss: {loss}")
    options = replace(
        OPTIONS,
        brokers=words.number("brokers", 3),
        pooled=words.number("pooled", 0),
        backup=words.option("backup", "off") == "on",
        operators=words.number("operators", 1),
        lag_time_max_ms=microseconds(words.option("lag", "30s")) // 1_000,
        segment_bytes=words.number("segment", 1_000_000),
        flush_messages=None if flush == "never" else whole(flush),
        on_controller_loss="StopServing" if loss == "StopServing" else "KeepServing",
        offsets_partitions=offsets or None,
        metadata_version=None if metadata == "newest" else whole(metadata),
        compacted=words.option("cleaning", "off") == "on",
        think_ms=(think_ms, think_ms),
        broker_configs=tuple(words.dotted().items()),
        inside=inside != "off",
        inside_says=INSIDE[inside],
        tenants=logins != "off",
        certified=logins == "certificates",
        clients_authority_ms=microseconds(words.option("clients_authority", "0s")) // 1_000 or None,
        send_buffers=_send_buffers(buffers) if buffers else None,
        slots=words.number("slots", 64),
        coordinated=int(words.option("transactions", "off") == "on"),
        slice_partitions_max=words.number("slice", 1_000),
    )
    words.end()
    stage.begin(options)
    stage.world.start_all()
    hosts = stage.world.brokers.values()
    stage.until(lambda: all(stage.takes_part(host) for host in hosts), "every broker serves")
    if (secured := stage.world.secured) is not None:
        stage.until(lambda: secured.closed, "every client is asked for a login")


def _send_buffers(text: str) -> SendBuffers:
    kernel, slash, limit = text.partition("/")
    if not slash:
        raise BadScript("buffers are two numbers: kernel/limit")
    return SendBuffers(whole(kernel), whole(limit))


def topic(stage: Stage, words: Words) -> None:
    """topic orders replicas=1,2,3 min_isr=2 unclean.recovery.strategy=Balanced: apply a Topic and
    wait until it is reconciled (`nowait`: do not wait). There is one list of replicas for each
    partition, separated by slashes; the first replica is the preferred leader. Names with a dot are
    configs. If the topic exists, the command changes it."""
    world = stage.world
    name = words.plain.pop(0) if words.plain else TOPIC
    changed: dict[str, object] = {}
    lists = words.option("replicas", "")
    if lists:
        assignment = tuple(
            tuple(whole(one) for one in replicas.split(",")) for replicas in lists.split("/")
        )
        rows = tuple(
            PartitionAssignment(partition=index, replicas=replicas)
            for index, replicas in enumerate(assignment)
        )
        changed |= {
            "placement": Placement(strategy="Explicit", assignment=rows),
            "partitions": len(assignment),
            "replication_factor": len(assignment[0]),
        }
    min_isr = words.option("min_isr", "")
    if min_isr:
        changed["min_in_sync_replicas"] = whole(min_isr)
    known = world.objects.declared(name)
    configs = {} if known is None else dict(known.configs)
    configs |= words.dotted()
    strategy = configs.pop("unclean.recovery.strategy", None)
    if strategy is not None:
        changed["unclean_recovery"] = msgspec.convert({"strategy": strategy}, TopicUncleanRecovery)
    changed["config"] = configs or None
    nowait = words.flag("nowait")
    words.end()
    world.declare(name, **changed)
    wanted = world.objects.declared(name)
    assert wanted is not None

    def applied() -> bool:
        topic_id = stage.image.topic_ids.get(name)
        found = None if topic_id is None else stage.image.topics.get(topic_id)
        if found is None or dict(found.configs) != wanted.configs:
            return False
        numbers = (found.partitions, found.min_isr) == (wanted.partitions, wanted.min_isr)
        return numbers and stage.everybody_knows()

    if not nowait:
        stage.until(applied, f"topic {name} is as it was applied")
        stage.changes_shown = len(world.ghost.history)


def delete_topic(stage: Stage, words: Words) -> None:
    """delete-topic orders: delete the Topic object, and wait until the topic is deleted."""
    name = words.take("a topic")
    words.end()
    stage.world.delete(name)
    stage.until(lambda: name not in stage.image.topic_ids, f"topic {name} is gone")


def rename_topic(stage: Stage, words: Words) -> None:
    """rename-topic orders shop-orders: apply another Topic object that declares the topic, delete
    the first object, and wait until the other declares the topic."""
    name, other = words.take("a topic"), words.take("an object")
    words.end()
    world = stage.world
    spec = msgspec.structs.replace(world.objects.get(TOPICS, name).spec, topic_name=name)
    world.objects.create(TOPICS, other, spec)
    world.delete(name)

    def handed_over() -> bool:
        topic_id = stage.image.topic_ids.get(name)
        holder = None if topic_id is None else stage.image.topics[topic_id].object
        return holder is not None and holder.name == other

    stage.until(handed_over, f"topic {name} is {other}'s")


def run(stage: Stage, words: Words) -> None:
    """run 3s: let this much virtual time pass."""
    us = microseconds(words.take("a time"))
    words.end()
    stage.run(us)


def until(stage: Stage, words: Words) -> None:
    """until leader=2 isr=2,3: let time pass until the condition is true, to the exact step.
    `within=10s`: fail after that time."""
    bound = [word for word in words.all if word.startswith("within=")]
    wanted = [word for word in words.all if word not in bound]
    us_max = microseconds(bound[0].removeprefix("within=")) if bound else 120_000_000
    try:
        stage.until(condition(stage, wanted), " ".join(wanted), us_max)
    except NotAlive as error:
        raise NotAlive(f"{error}; it is {state(stage, wanted)}") from None


def expect(stage: Stage, words: Words) -> None:
    """expect 1 hw=4: fail unless the condition is true now."""
    if not condition(stage, words.all)():
        raise BadScript(f"it is not so: {state(stage, words.all)}")


def settle(stage: Stage, words: Words) -> None:
    """settle: end every fault, start every process, and wait until the cluster has converged: all
    brokers serve, every partition has a leader and a full ISR, and all its copies are equal."""
    words.end()
    stage.taps.release(stage.taps.holds)
    stage.world.heal()
    try:
        stage.until(lambda: is_finished(stage.world), "everything is as it should be")
    except NotAlive as error:
        raise NotAlive(f"{error}; {'; '.join(unfinished(stage.world))}") from None
    stage.world.healed = False  # who is stopped from now on stays so


def look(stage: Stage, words: Words) -> list[str]:
    """show partition | changes | committed | logs [1 2] | leader [1] | epochs 1 | files 1 | brokers
    | messages | operators | terms | restarts | hours | backup | version: print state, with
    `of=orders-1` of another partition than orders-0. `changes`: those committed since the last
    `show changes`. `messages`: proposals, their answers, and fetches that were refused or diverged
    since the last `show messages`. `terms`: the operators that have led the cluster."""
    at = stage.at(words.option("of", ""))
    what = words.take("something to show")
    only, words.plain = words.plain, []
    words.end()
    if what in PARTITIONS_SHOWN:
        return PARTITIONS_SHOWN[what](stage, at)
    if what in CLUSTER_SHOWN:
        return CLUSTER_SHOWN[what](stage)
    match what:
        case "logs":
            return rendering.logs(stage, at, only)
        case "leader":
            name = only[0] if only else str(stage.partition(at).leader)
            return rendering.leader(stage, stage.broker(name), at)
        case "epochs":
            return [line for one in only for line in rendering.epochs(stage, stage.broker(one), at)]
        case "files":
            return [line for one in only for line in rendering.files(stage.broker(one), at)]
    raise BadScript(f"nothing to show by the name {what}")


def remove(stage: Stage, words: Words) -> None:
    """remove 3: remove broker 3 from the LogCluster's spec; it is emptied and then removed."""
    going = stage.broker(words.take("a broker")).id
    words.end()
    world = stage.world
    kept = tuple(one for one in world.objects.members if one != going)
    world.objects.set_members(kept, world.options.broker_ids)


def want(stage: Stage, words: Words) -> None:
    """want 1 2 100: set the members that the LogCluster's spec asks for; the others are emptied
    and then removed. A pool without a member is taken off the spec."""
    wanted = [BrokerId(stage.broker(name).id) for name in words.rest("a broker")]
    words.end()
    world = stage.world
    world.objects.set_members(tuple(wanted), world.options.broker_ids)


PARTITIONS_SHOWN: dict[str, Callable[[Stage, TopicPartition], list[str]]] = {
    "partition": rendering.partition,
    "changes": rendering.changes,
    "committed": rendering.committed,
}
CLUSTER_SHOWN: dict[str, Callable[[Stage], list[str]]] = {
    "messages": rendering.messages,
    "brokers": rendering.brokers,
    "operators": rendering.operators,
    "terms": rendering.terms,
    "version": rendering.version,
    "restarts": restart_verbs.restarts,
    "hours": hour_verbs.shown,
    "backup": backup_verbs.shown,
}
VERBS: dict[str, Verb] = {
    "cluster": cluster,
    "topic": topic,
    "delete-topic": delete_topic,
    "rename-topic": rename_topic,
    "run": run,
    "until": until,
    "expect": expect,
    "settle": settle,
    "show": look,
    "want": want,
    "remove": remove,
}
