"""Commands of scenarios for clients: produce, send again, read, ask."""

from __future__ import annotations

from plimsoll_core.ids import TopicPartition
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.scenario.cluster_verbs import Verb
from plimsoll_sim.scenario.coordinated_verbs import COORDINATED_VERBS
from plimsoll_sim.scenario.group_verbs import GROUP_VERBS, MEMBER_VERBS
from plimsoll_sim.scenario.script import BadScript, Words, microseconds, whole
from plimsoll_sim.scenario.scripted_clients import Actor, SentBatch
from plimsoll_sim.scenario.stage import CLIENT, Stage
from plimsoll_sim.scenario.transaction_verbs import TRANSACTION_VERBS

ACKS = {"all": -1, "1": 1, "0": 0}
PATIENCE = "1s"
ELECTIONS = {"preferred": 0, "unclean": 1}
ADMIN_PATIENCE = "20s"


def _target(stage: Stage, words: Words, at: TopicPartition) -> str:
    """Return the broker that the command names, else the partition's leader."""
    name = words.option("to", "")
    return stage.broker(name).name if name else stage.leader(at)


def _sent(stage: Stage, batches: list[SentBatch], host: str, patience: str) -> list[str]:
    """Send the batches one after another on one connection. Return their answers, as far as they
    come within `patience`."""
    for batch in batches:
        batch.by.produce(batch, host)
    stage.waited(lambda: all(batch.answer is not None for batch in batches), microseconds(patience))
    return stage.answers(batches)


def produce(stage: Stage, words: Words) -> list[str]:
    """produce a b*5 acks=all: send batches by name (b has five records), each in a request of its
    own, to the leader or `to=2`, for orders-0 or `of=orders-1`. `by=p`: by the idempotent producer
    p, else by a client without a producer id. Prints the answers that come within `wait=1s`."""
    at = stage.at(words.option("of", ""))
    acks = words.option("acks", "all")
    if acks not in ACKS:
        raise BadScript("acks is all, 1 or 0")
    host, name = _target(stage, words, at), words.option("by", "")
    patience = words.option("wait", PATIENCE)
    batches: list[SentBatch] = []
    actor = stage.actor(name or CLIENT)
    if name and actor.producer is None:
        told = stage.ask(actor, actor.begin_producing(host), 10_000_000)
        if told:
            return told
    for word in words.rest("batches"):
        ident, _, records = word.partition("*")
        if ident in stage.batches:
            raise BadScript(f"{ident} was sent before; retry it")
        batch = SentBatch(
            sent=actor.next_batch(ident, whole(records or "1")), at=at, acks=ACKS[acks], by=actor
        )
        stage.batches[ident] = batch
        batches.append(batch)
    words.end()
    return _sent(stage, batches, host, patience)


def retry(stage: Stage, words: Words) -> list[str]:
    """retry a: send the same batch again, with its producer's id and sequence, to the leader or
    `to=2`."""
    patience, to = words.option("wait", PATIENCE), words.option("to", "")
    batches = [stage.batch(name) for name in words.rest("batches")]
    words.end()
    for batch in batches:
        if batch.by.producer is None:
            raise BadScript(f"{batch.name} has no producer's id: it would be another batch")
    host = stage.broker(to).name if to else stage.leader(batches[0].at)
    return _sent(stage, batches, host, patience)


def answers(stage: Stage, words: Words) -> list[str]:
    """answers: print the outcome of every batch of which no answer was printed yet."""
    words.end()
    return stage.answers(batch for batch in stage.batches.values() if not batch.shown)


def wait(stage: Stage, words: Words) -> list[str]:
    """wait a: run until the batch is answered."""
    batches = [stage.batch(name) for name in words.rest("batches")]
    words.end()
    stage.until(lambda: all(batch.answer is not None for batch in batches), "they are answered")
    return stage.answers(batches)


def _reader(stage: Stage, words: Words) -> tuple[Actor, TopicPartition, str]:
    at = stage.at(words.option("of", ""))
    return stage.actor(words.option("by", CLIENT)), at, _target(stage, words, at)


def consume(stage: Stage, words: Words) -> list[str]:
    """consume offset=0 LE=2: print the records that a consumer reads from this offset on, from the
    leader or `to=2`. `LE`: the leader epoch that the consumer knows."""
    actor, at, host = _reader(stage, words)
    offset, epoch = words.number("offset", 0), words.number("LE", -1)
    words.end()
    return stage.ask(actor, actor.fetch(at, host, offset, epoch), microseconds(PATIENCE))


def latest(stage: Stage, words: Words) -> list[str]:
    """latest: print the log end that a consumer is told (ListOffsets)."""
    actor, at, host = _reader(stage, words)
    words.end()
    return stage.ask(actor, actor.latest(at, host), microseconds(PATIENCE))


def metadata(stage: Stage, words: Words) -> list[str]:
    """metadata to=2: print the leader and the brokers that this broker tells a client."""
    actor, at, host = _reader(stage, words)
    words.end()
    return stage.ask(actor, actor.metadata(at, host), microseconds(PATIENCE))


def epoch_end(stage: Stage, words: Words) -> list[str]:
    """epoch-end 1 LE=2: print the end offset of leader epoch 1 (OffsetForLeaderEpoch), as answered
    to a consumer that knows leader epoch 2."""
    actor, at, host = _reader(stage, words)
    epoch, known = whole(words.take("a term")), words.number("LE", -1)
    words.end()
    return stage.ask(actor, actor.epoch_end(at, host, epoch, known), microseconds(PATIENCE))


def elect(stage: Stage, words: Words) -> list[str]:
    """elect preferred | unclean: request an election as a client (ElectLeaders), through the leader
    or `to=2`."""
    kind = words.take("a kind of election")
    if kind not in ELECTIONS:
        raise BadScript(f"there is no {kind} election")
    actor, at, host = _reader(stage, words)
    words.end()
    return stage.ask(actor, actor.elect(at, host, ELECTIONS[kind]), microseconds(ADMIN_PATIENCE))


def create(stage: Stage, words: Words) -> list[str]:
    """create orders replicas=1,2,3 min_isr=2: create a topic as a client (CreateTopics). No object
    declares the topic, so clients may move its replicas. The options are those of `topic`."""
    name = words.plain.pop(0) if words.plain else TOPIC
    configs = {"min.insync.replicas": words.option("min_isr", "2"), **words.dotted()}
    lists = [one.split(",") for one in words.option("replicas", "1,2,3").split("/")]
    replicas = [[whole(broker_id) for broker_id in one] for one in lists]
    host = stage.broker(words.option("to", "1")).name
    words.end()
    actor = stage.actor(CLIENT)
    told = stage.ask(
        actor, actor.create(name, host, replicas, configs), microseconds(ADMIN_PATIENCE)
    )
    if not told:
        stage.until(stage.everybody_knows, "all brokers know it")
        stage.changes_shown = len(stage.world.ghost.history)
    return told


def reassign(stage: Stage, words: Words) -> list[str]:
    """reassign 1,2,4: request these replicas as a client (AlterPartitionReassignments), the
    preferred leader first, through the leader or `to=2`; `reassign cancel`: cancel the move."""
    wanted = words.take("replicas")
    actor, at, host = _reader(stage, words)
    words.end()
    replicas = None if wanted == "cancel" else [whole(one) for one in wanted.split(",")]
    return stage.ask(actor, actor.reassign(at, host, replicas), microseconds(ADMIN_PATIENCE))


def delete_records(stage: Stage, words: Words) -> list[str]:
    """delete-records 4: request, as a client, that the leader of orders-0 (or `of=`) deletes the
    records below this offset (DeleteRecords). Wait until all in-sync replicas have done so, at most
    `wait=1s`."""
    patience = words.option("wait", PATIENCE)
    actor, at, host = _reader(stage, words)
    offset = whole(words.take("an offset"))
    words.end()
    ghost = stage.world.ghost.by_name[at]
    return stage.ask(actor, actor.delete_records(ghost, host, offset), microseconds(patience))


VERBS: dict[str, Verb] = {
    **GROUP_VERBS,
    **MEMBER_VERBS,
    **TRANSACTION_VERBS,
    **COORDINATED_VERBS,
    "delete-records": delete_records,
    "produce": produce,
    "retry": retry,
    "answers": answers,
    "wait": wait,
    "consume": consume,
    "latest": latest,
    "metadata": metadata,
    "epoch-end": epoch_end,
    "elect": elect,
    "create": create,
    "reassign": reassign,
}
