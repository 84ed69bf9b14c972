"""Conditions that a scenario waits for or requires: fields of a partition or of a broker.

leader=2 isr=2,3 the partition orders-0, as committed orders-1 LE=3 another partition 1 hw=4
role=leader broker 1, and what it has of orders-0 3 orders-1 end=5 broker 3 and orders-1 held a
message is held back kept a write to the API server is on its way shown the statuses of all objects
are true operator 1 operator 1 leads
renewed no certificate, and no authority, is being replaced clients-authority signs it is new,
announced, or signs while the one before is believed

Besides `=` there is `!=`, and `>=` for numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_core.ids import TopicPartition
from plimsoll_sim.checkers.liveness import unshown
from plimsoll_sim.scenario import (
    hour_verbs,
    inside_verbs,
    rendering,
    restart_verbs,
    user_verbs,
)
from plimsoll_sim.scenario.script import BadScript, whole
from plimsoll_sim.scenario.stage import Stage

OPERATORS = ("!=", ">=", "=")
PARTITION = ("leader", "LE", "PE", "isr", "elr", "lkelr", "min_isr", "recovery")
MOVE = ("replicas", "adding", "removing")
BROKER = (
    "process", "state", "ready", "role", "hw", "end", "start", "counts", "proposes", "fetches",
)  # fmt: skip
NAMES = frozenset((*PARTITION, *MOVE, *BROKER))
ALONE: dict[str, Callable[[Stage], bool]] = {
    "held": lambda stage: stage.taps.kept > 0,
    "kept": lambda stage: any(stage.world.weather.kept.values()),
    "renewed": inside_verbs.renewed,
    "rolled": restart_verbs.rolled,
    "asleep": hour_verbs.asleep,
    "awake": hour_verbs.awake,
    "shown": lambda stage: next(unshown(stage.world.objects, stage.image), None) is None,
}


def condition(stage: Stage, words: list[str]) -> Callable[[], bool]:
    """Return a function that is True while the condition holds."""
    if len(words) == 1 and words[0] in ALONE:
        return lambda: ALONE[words[0]](stage)
    if words[:1] == ["clients-authority"]:
        return lambda: user_verbs.authority_state(stage) == words[-1]
    if words[:1] == ["granted"] and words[1:] and words[1].isdecimal():
        return lambda: restart_verbs.granted(stage, words[1])
    if words[:1] == ["operator"]:
        host = stage.operator(words[-1])
        return lambda: host.active
    wanted = [_comparison(word) for word in words if _is_comparison(word)]
    subjects = [word for word in words if not _is_comparison(word)]
    if not wanted:
        raise BadScript("what is waited for? name=value")
    broker = subjects.pop(0) if subjects and subjects[0].isdecimal() else None
    at = stage.at(subjects.pop(0) if subjects else "")
    if subjects:
        raise BadScript(f"a condition does not know {' '.join(subjects)}")

    def holds() -> bool:
        fields = _fields(stage, broker, at)
        return all(_compare(fields, *one) for one in wanted)

    return holds


def state(stage: Stage, words: list[str]) -> str:
    """Return the present state, for a condition that did not come true."""
    subjects = [word for word in words if not _is_comparison(word)]
    broker = subjects.pop(0) if subjects and subjects[0].isdecimal() else None
    if words[:1] and words[0] in (*ALONE, "operator", "granted", "clients-authority"):
        return "not so"
    fields = _fields(stage, broker, stage.at(subjects[0] if subjects else ""))
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _fields(stage: Stage, broker: str | None, at: TopicPartition) -> dict[str, str]:
    if broker is None:
        return rendering.partition_fields(stage.partition(at))
    return rendering.broker_fields(stage, stage.broker(broker), at)


def _is_comparison(word: str) -> bool:
    return "=" in word


def _comparison(word: str) -> tuple[str, str, str]:
    for operator in OPERATORS:
        name, found, value = word.partition(operator)
        if found and name in NAMES:
            return name, operator, value
    raise BadScript(f"{word} compares nothing that is known")


def _compare(fields: dict[str, str], name: str, operator: str, value: str) -> bool:
    found = fields.get(name)
    if operator == "!=":
        return found != value
    if operator == "=":
        return found == value
    return found is not None and found.isdecimal() and int(found) >= whole(value)
