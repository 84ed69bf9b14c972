"""A status always fits its own schema, whatever it tells of, and a refused one calms down."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from tests.plimsoll_operator.builders import an_image
from tests.plimsoll_operator.declared_users import Users, declared_user
from tests.plimsoll_operator.scripted_kube import ScriptedKube
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_operator.api.fit import fitted
from plimsoll_operator.api.labels import NAME_MAX, derived_name
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.schema import structural
from plimsoll_operator.api_server.schema_validation import compiled
from plimsoll_operator.kube.errors import Rejected
from plimsoll_operator.kube.resources import TOPICS, USERS, Kind
from plimsoll_operator.process_clocks import wall_ms
from plimsoll_operator.reconcile.registry import KINDS, draft_of
from plimsoll_operator.reconcile.topic import reconcile as topic
from plimsoll_operator.reconcile.topic.topic_memory import topics_of
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status import status_writer
from plimsoll_operator.status.status_writer import Status, StatusDraft, StatusWriter, Target

STATUSES = [kind.status for kind in KINDS]


def extreme(info: inspect.Type, size: int) -> Any:
    """A value of the type as large as no schema allows, or as small."""
    match info:
        case inspect.Metadata():
            return extreme(info.type, size)
        case inspect.UnionType():
            kinds = [one for one in info.types if not isinstance(one, inspect.NoneType)]
            return extreme(kinds[-1], size)
        case inspect.StructType():
            return {f.encode_name: extreme(f.type, size) for f in info.fields}
        case inspect.VarTupleType() | inspect.ListType():
            return [extreme(info.item_type, size) for _ in range(min(size, 40))]
        case inspect.DictType():
            key = extreme(info.key_type, size)
            values = (extreme(info.value_type, size) for _ in range(min(size, 80)))
            return {f"{number}{key}": value for number, value in enumerate(values)}
        case inspect.LiteralType():
            return info.values[0]
        case inspect.StrType():
            return "x" * size
        case inspect.IntType() | inspect.FloatType():
            return -1 if size % 2 else 2**40
        case inspect.BoolType():
            return True
        case _:
            raise AssertionError(info)


def timely(value: Any) -> Any:
    """With times in the place of texts: which text is a time no bound says."""
    if isinstance(value, dict):
        times = {"lastTransitionTime", "since", "startTime", "completionTime"}
        return {
            key: "2026-01-01T00:00:00Z" if key in times or key.endswith("Time") else timely(one)
            for key, one in value.items()
        }
    return [timely(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("size", [0, 1, 40_000, 40_001])
@pytest.mark.parametrize("model", STATUSES, ids=lambda model: model.__name__)
def test_status_of_extreme_values_fits_its_schema(model: type[msgspec.Struct], size: int):
    wild = timely(extreme(inspect.type_info(model), size))
    causes: list[Any] = []
    compiled(structural(model))(fitted(wild, model), "status", causes)
    wrong = [c.message for c in causes if "date-time" not in c.message]
    assert not wrong, wrong[:5]


def test_status_within_bounds_is_unchanged():
    for model, size in itertools.product(STATUSES, (3, 4)):
        body = fitted(timely(extreme(inspect.type_info(model), size)), model)
        assert fitted(body, model) == body


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [*range(246, 254)])
async def test_topic_with_any_name_shows_condition(length: int):
    scene = Scene(an_image(), Deciding(an_image()))
    key = ("kafka", "t" * length)
    body = {
        "metadata": {"namespace": key[0], "name": key[1], "generation": 1},
        "spec": {"clusterRef": {"name": "main"}, "partitions": 1},
    }
    scene.objects.topics.put(scene.kube.put(TOPICS, body))
    try:
        await scene.run(topic.reconcile, key)
    except Retry:
        assert length > 249
    if length <= 249:
        assert key not in topics_of(scene.term).refusals
        return
    shown = await written(scene, Target(TOPICS, *key))
    assert shown["topicName"] == key[1]
    assert (shown["conditions"][0]["type"], shown["conditions"][0]["status"]) == ("Ready", "False")


@pytest.mark.parametrize("length", [*range(246, 254)])
async def test_user_with_any_name_shows_condition(length: int):
    scene = Users()
    key = ("kafka", "u" * length)
    body = declared_user()
    body["metadata"] = {"namespace": key[0], "name": key[1], "generation": 1}
    scene.objects.users.put(scene.kube.put(USERS, body))
    await scene.run(user.reconcile, key)
    shown = await written(scene, Target(USERS, *key))
    (ready,) = shown["conditions"]
    assert (ready["type"], ready["status"]) == ("Ready", "False")
    assert "is not allowed. A user name has" in ready["message"]


async def written(scene: Scene, target: Target) -> dict[str, Any]:
    """The object's status as the API server stored it."""
    writer = StatusWriter(scene.kube, lambda one: draft_of(scene.term, one), wall_ms)
    await writer.write(target)
    found = scene.kube.find(target.kind, target.namespace, target.name)
    status: dict[str, Any] = found["status"]
    return status


def test_derived_names_fit_and_differ():
    names = [f"{'r' * (length - 1)}{end}" for length in (240, 248, 249, 253) for end in "ab"]
    for suffix in ("-plan", "-kafka"):
        made = [derived_name(name, suffix) for name in names]
        assert len(set(made)) == len(names)
        assert all(len(one) <= NAME_MAX and one.endswith(suffix) for one in made)
    assert derived_name("short", "-plan") == "short-plan"


# --- an API server that refuses -------------------------------------------------------------------


class Refusing(ScriptedKube):
    """Whose CRD is another release's: it takes no status."""

    sentence = "Topic.plimsoll.dev is invalid: status.conditions: Too many"

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: dict[str, Any], *, version: str = ""
    ) -> dict[str, Any]:
        self.calls.append(("status", kind.plural, name))
        raise Rejected(422, self.sentence)


async def test_refused_status_is_tried_ever_more_rarely(monkeypatch: pytest.MonkeyPatch):
    kube, target = Refusing(), Target(TOPICS, "kafka", "orders")
    loop, waits = asyncio.get_running_loop(), []
    later = loop.call_later
    monkeypatch.setattr(
        loop, "call_later", lambda delay, *a, **k: (waits.append(delay), later(3600, *a, **k))[1]
    )
    now_s = [0.0]
    monkeypatch.setattr(loop, "time", lambda: now_s[0])
    writer = StatusWriter(kube, lambda _: a_draft(), wall_ms)
    for _ in range(100):
        await writer.write(target)
        now_s[0] += 0.7
    assert len(kube.calls) <= 5, "not at each mark"
    assert waits == sorted(waits)
    assert max(waits) <= status_writer.FAILED_MS / 1000


async def test_field_refused_by_crd_is_omitted():
    kube, target = ScriptedKube(), Target(TOPICS, "kafka", "orders")
    kube.put(
        TOPICS,
        {
            "metadata": {"name": "orders", "namespace": "kafka"},
            "spec": {"clusterRef": {"name": "m"}},
        },
    )
    kube.fail = [Rejected(422, 'Topic "orders" is invalid: status.topicName: Too long: 253')]
    writer = StatusWriter(kube, lambda _: a_draft(), wall_ms)
    await writer.write(target)
    shown = kube.find(TOPICS, "kafka", "orders")["status"]
    assert "topicName" not in shown
    assert shown["conditions"][0]["type"] == "Ready"


def a_draft() -> StatusDraft:
    ready = Condition(type="Ready", status="True", reason="Serving", message="")
    model = KINDS[1].status
    status: Status = model(topic_name="orders", conditions=(ready,))  # type: ignore[call-arg]
    return StatusDraft(uid="", status=status, generation=1, shown=(), version="")
