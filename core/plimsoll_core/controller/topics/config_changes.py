"""Changes the configs of topics that no object declares, and checks and spreads those of any topic.

Called for AlterTopicConfigs. Each topic is changed by itself, completely or not at all. A declared
topic changes through its object; a request that would change nothing is not refused, so that tools
which remove absent configs succeed.

`check_version` checks configs against the metadata version. Brokers of a release without compaction
would not follow a log with gaps: no topic becomes compacted before all of them are newer.  Brokers
that do not know a topic's codec would keep some batches as they were produced, and their
controllers refuse every other change of its configs; so do controllers that do not know an empty
list of policies.

A changed min ISR reaches the partitions slice by slice: `spread_min_isr` is called when an object
or a client states another one, by a new term for an unfinished change, and by ticks, because a full
log drops a slice with its request, but not the slices committed before it. Each partition stores
its min ISR under its partition epoch: a leader must know the new value before any of its proposals
is committed again, and it receives the controller's shrinks later, in log order. An ISR that is
large enough by the new value needs no ELR; otherwise both ELR lists stay, because a leaderless
partition still waits for their members (Kafka clears both lists: KIP-966's ClearElr). Source: the
protocol's rules for AlterConfigs and for min ISR changes; docs/protocol.md §10; KIP-133, KIP-339.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from immutables import Map
from msgspec.structs import replace

from plimsoll_core.cluster.model import PartitionKey, Topic
from plimsoll_core.cluster.records import TopicConfigured
from plimsoll_core.cluster.topic_configs import (
    AS_PRODUCED,
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    LISTS,
    MIN_ISR,
    UNCLEAN_ENABLE,
    UNCLEAN_RECOVERY,
    client_configs,
    compacts,
    keeps_everything,
)
from plimsoll_core.cluster.topic_names import check_form
from plimsoll_core.controller.kernel.decision import DecisionContext, too_old
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.topics.internal_topics import reserved
from plimsoll_core.controller.topics.topic_creation import declared_elsewhere
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import TopicId
from plimsoll_core.messages.requests import Answer
from plimsoll_core.messages.topics import (
    AlterTopicConfigs,
    ConfigChange,
    TopicChanged,
    TopicConfigChanges,
    TopicsChanged,
)

EACH_TOPIC = 10
"""The work of a client's change of one topic, in partitions: so many fewer partitions fit the same
turn."""
COMPACTED_SINCE = 2
"""The metadata version that introduced compacted topics."""
COMPRESSED_SINCE = 3
"""The metadata version that introduced one codec for all batches of a topic
(`compression.type`)."""
NO_POLICY_SINCE = 3
"""The metadata version that introduced topics with an empty `cleanup.policy`."""
CAUSE = "configured by a client"
_OWN_FIELDS = {
    MIN_ISR: "spec.minInSyncReplicas",
    UNCLEAN_RECOVERY: "spec.uncleanRecovery",
    UNCLEAN_ENABLE: "spec.uncleanRecovery",
}


def check_version(turn: DecisionContext, configs: Mapping[str, str]) -> Refusal | None:
    refusal = None
    if compacts(configs):
        refusal = _too_old(turn, CLEANUP_POLICY, configs, COMPACTED_SINCE)
    if configs.get(COMPRESSION_TYPE, AS_PRODUCED) != AS_PRODUCED:
        refusal = refusal or _too_old(turn, COMPRESSION_TYPE, configs, COMPRESSED_SINCE)
    if keeps_everything(configs):
        refusal = refusal or _too_old(turn, CLEANUP_POLICY, configs, NO_POLICY_SINCE)
    return refusal


def _too_old(
    turn: DecisionContext, name: str, configs: Mapping[str, str], since: int
) -> Refusal | None:
    return too_old(turn, since, f"{name}={configs[name]} needs")


def spread_min_isr(turn: DecisionContext, topics: Iterable[TopicId]) -> tuple[TopicId, ...]:
    """Set the min ISR of each of these topics in those of its partitions that have another one, at
    most one slice of partitions in all. Return the topics that still have such partitions. A
    deleted topic has none."""
    behind = [
        topic_id for topic_id in dict.fromkeys(topics) if topic_id in turn.image.min_isr_behind
    ]
    room = turn.settings.slice_partitions_max
    for topic_id in behind:
        if room <= 0:
            break
        room -= _spread(turn, topic_id, room)
    return tuple(topic_id for topic_id in behind if topic_id in turn.image.min_isr_behind)


def finish_min_isr(turn: DecisionContext) -> None:
    """Set the min ISR in a slice of partitions of all topics in which it is unfinished. Ticks call
    this."""
    spread_min_isr(turn, sorted(turn.image.min_isr_behind))


def _spread(turn: DecisionContext, topic_id: TopicId, most: int) -> int:
    """Set the topic's min ISR in at most `most` of its partitions. Return the number of changed
    ones."""
    image, topic = turn.image, turn.image.topics[topic_id]
    partitions = (image.partitions[PartitionKey(topic_id, n)] for n in range(topic.partitions))
    now = [p for p in partitions if p.min_isr != topic.min_isr][:most]
    wish = PartitionUpdate(min_isr=topic.min_isr)
    turn.change([(p, wish) for p in now], f"min ISR is {topic.min_isr} now")
    return len(now)


def found(turn: DecisionContext, name: str, times: int) -> Topic | Refusal:
    """Return the topic with this name. Return a refusal if there is none, or if the request names
    it more than once (`times`)."""
    if times > 1:
        return Refusal(
            reason=Reason.InvalidRequest,
            message=f"The request names topic {name} more than once; name it once.",
        )
    topic_id = turn.image.topic_ids.get(name)
    if topic_id is not None:
        return turn.image.topics[topic_id]
    return check_form(name) or Refusal(
        reason=Reason.UnknownTopicOrPartition, message=f"There is no topic {name}."
    )


def not_a_clients(topic: Topic, instead: str) -> Refusal | None:
    """Return a refusal if clients may not change the topic, since it is internal or an object
    declares it, or None. `instead` says in the message what to do."""
    return reserved(topic.name) or declared_elsewhere(topic, instead)


def told(name: str, refusal: Refusal | None) -> TopicChanged:
    if refusal is None:
        return TopicChanged(topic=name)
    return TopicChanged(
        topic=name,
        code=refusal.reason.code,
        reason=refusal.reason.name,
        message=refusal.message,
    )


def alter_configs(turn: DecisionContext, request: AlterTopicConfigs) -> Answer:
    """Change the configs of topics for a client, or only check that if `request.validate_only`.
    Topics beyond what fits one turn are decided in later turns (`turn.again`)."""
    image, records = turn.image, list(turn.records)
    most = -(-turn.settings.slice_partitions_max // EACH_TOPIC)
    now, rest = request.topics[:most], request.topics[most:]
    times = Counter(one.topic for one in request.topics)
    times.update(one.topic for one in request.answered)
    answers = (*request.answered, *(_answered(turn, one, times[one.topic]) for one in now))
    if request.validate_only:
        turn.image, turn.records = image, records
        left: tuple[TopicId, ...] = ()
    else:
        left = spread_min_isr(turn, (*request.spreading, *_named(turn, now)))
    if rest or left:
        turn.again = replace(request, topics=rest, answered=answers, spreading=left)
    return TopicsChanged(topics=answers, end_offset=turn.image.next_offset)


def _named(turn: DecisionContext, wishes: tuple[TopicConfigChanges, ...]) -> list[TopicId]:
    """Return the ids of the topics that the request names, including unchanged ones: a client that
    repeats a request waits until the min ISR has reached all their partitions."""
    ids = turn.image.topic_ids
    return [ids[one.topic] for one in wishes if one.topic in ids]


def _answered(turn: DecisionContext, wish: TopicConfigChanges, times: int) -> TopicChanged:
    return told(wish.topic, _alter(turn, wish, times))


def _alter(turn: DecisionContext, wish: TopicConfigChanges, times: int) -> Refusal | None:
    """Change the configs of one topic. Return None if it has the wanted configs now, or a refusal
    if nothing was changed."""
    topic = found(turn, wish.topic, times)
    if isinstance(topic, Refusal):
        return topic
    before = _stated(topic)
    wanted = _wanted(wish, before)
    if isinstance(wanted, Refusal):
        return wanted
    if wanted == before and not _forgets_min_isr(wish):
        return None
    configs = client_configs(wanted, topic.configs)
    if isinstance(configs, Refusal):
        return configs
    refusal = not_a_clients(topic, f"edit {_fields(before, wanted)} of that object")
    if refusal := refusal or check_version(turn, configs.kept):
        return refusal
    min_isr = configs.min_isr
    if min_isr is None:
        forgotten = MIN_ISR in before or _forgets_min_isr(wish)
        default = min(turn.settings.default_min_isr, topic.replication_factor)
        min_isr = default if forgotten else topic.min_isr
    if (topic.configs, topic.min_isr) != (Map(configs.kept), min_isr):
        turn.add(
            TopicConfigured(
                cause=CAUSE,
                topic_id=topic.id,
                configs=dict(sorted(configs.kept.items())),
                min_isr=min_isr,
            )
        )
    return None


def _stated(topic: Topic) -> dict[str, str]:
    """Return the configs that are set for the topic itself, including its min ISR if an object
    declares the topic."""
    own = {} if topic.object is None else {MIN_ISR: str(topic.min_isr)}
    return {**topic.configs, **own}


def _forgets_min_isr(wish: TopicConfigChanges) -> bool:
    return any(one.name == MIN_ISR and one.operation == "Delete" for one in wish.changes)


def _fields(before: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Return the fields of a Topic object in which the changed configs are set, joined by "and"."""
    names = [n for n in {**before, **wanted} if before.get(n) != wanted.get(n)]
    fields = {_OWN_FIELDS.get(name, "spec.config") for name in names}
    return " and ".join(sorted(fields))


# --- one topic's configs, changed ----------------------------------------------------------------


def _wanted(wish: TopicConfigChanges, before: Mapping[str, str]) -> dict[str, str] | Refusal:
    """Return all configs that the topic should have after the request, or a Refusal if a change is
    not possible."""
    changes = {one.name: one for one in wish.changes}
    if len(changes) != len(wish.changes):
        text = "Error due to duplicate config keys: name each config once."
        return Refusal(reason=Reason.InvalidRequest, message=text)
    wanted = {} if wish.replace else dict(before)
    if UNCLEAN_ENABLE in changes and UNCLEAN_RECOVERY not in changes:
        wanted.pop(UNCLEAN_RECOVERY, None)  # the older name of the same
    for one in wish.changes:
        refusal = _apply(one, wanted)
        if refusal:
            return refusal
    return wanted


def _apply(one: ConfigChange, wanted: dict[str, str]) -> Refusal | None:
    if one.operation == "Delete":
        wanted.pop(one.name, None)
        return None
    if one.value is None:
        message = f"Null value not supported for : {one.name[:100]}"
        return Refusal(reason=Reason.InvalidRequest, message=message)
    if one.operation == "Set":
        wanted[one.name] = one.value
        return None
    if one.name not in LISTS:
        return Refusal(
            reason=Reason.InvalidConfig,
            message=(
                f"Can't {one.operation.upper()} to key {one.name[:100]} because its type is not"
                " LIST."
            ),
        )
    items = _items(wanted.get(one.name, one.otherwise))
    given = dict.fromkeys(_items(one.value))
    if one.operation == "Append":
        items += given
    else:
        items = [item for item in items if item not in given]
    wanted[one.name] = ",".join(dict.fromkeys(items))
    return None


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
