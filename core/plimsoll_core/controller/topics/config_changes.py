"""Changes the configs of topics that no object declares.

Called for AlterTopicConfigs. Each topic is changed by itself, completely or not at all. A declared
topic changes through its object; a request that would change nothing is not refused, so that tools
which remove absent configs succeed. The min ISR reaches the partitions slice by slice. Source: the
protocol's rules for AlterConfigs; KIP-133, KIP-339; ConfigurationControlManager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from immutables import Map
from msgspec.structs import replace

from plimsoll_core.cluster.model import Topic
from plimsoll_core.cluster.records import TopicConfigured
from plimsoll_core.cluster.topic_configs import (
    LISTS,
    MIN_ISR,
    UNCLEAN_ENABLE,
    UNCLEAN_RECOVERY,
    client_configs,
)
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.topics.config_versions import check_version
from plimsoll_core.controller.topics.min_isr_change import spread_min_isr
from plimsoll_core.controller.topics.topic_changes import found, not_a_clients, told
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import TopicId
from plimsoll_core.messages.requests import Answer
from plimsoll_core.messages.topic_changes import (
    AlterTopicConfigs,
    ConfigChange,
    TopicChanged,
    TopicConfigChanges,
    TopicsChanged,
)

CAUSE = "configured by a client"
_OWN_FIELDS = {
    MIN_ISR: "spec.minInSyncReplicas",
    UNCLEAN_RECOVERY: "spec.uncleanRecovery",
    UNCLEAN_ENABLE: "spec.uncleanRecovery",
}


def alter_configs(turn: DecisionContext, request: AlterTopicConfigs) -> Answer:
    """Change the configs of topics for a client. Topics beyond what fits one turn are decided in
    later turns."""
    image, records = turn.image, list(turn.records)
    most = turn.settings.slice_partitions_max
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
    refusal = not_a_clients(topic, f"edit its {_fields(before, wanted)}")
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
    """Return the configs that are set for the topic itself. If an object declares the topic, they
    include its min ISR."""
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
        return Refusal(reason=Reason.InvalidRequest, message="Error due to duplicate config keys")
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
    given = _items(one.value)
    if one.operation == "Append":
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    wanted[one.name] = ",".join(dict.fromkeys(items))
    return None


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
