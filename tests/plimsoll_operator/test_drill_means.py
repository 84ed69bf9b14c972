"""Faults of a drill that need means of their own, and a drill whose operator dies at a step."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.test_drill_handler import LEADER_OF, a_drill, at, begun, end, note
from tests.plimsoll_operator.test_drill_handler import record as noted
from tests.plimsoll_operator.test_verification_handler import report

from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.ids import BrokerEpoch, ControllerEpoch
from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_operator.kube.api_outage import ApiOutage
from plimsoll_operator.kube.errors import ApiError, Conflict, Unavailable
from plimsoll_operator.kube.kube_api import HttpRequest, KubeApi
from plimsoll_operator.kube.resources import PODS, VERIFICATIONS, VOLUME_CLAIMS
from plimsoll_operator.reconcile.verification import drill_faults

NOW_MS = 1_000_000_000


def on_kubernetes(scene: Any, **options: Any) -> Any:
    """The same scene, as an installation with `verification.drills` has it."""
    term = scene.term
    stated = {"shared_drills": True, "identity": "op-1", "namespace": "ops", **options}
    term.options = type(term.options)(
        broker_image="b", controllers=("c:1",), spark_image="s:1", **stated
    )
    return scene


async def begun_there(*steps: dict[str, Any], **options: Any) -> Any:
    scene = on_kubernetes(a_drill(*steps, local=False), **options)
    await at(scene, -5)
    report(scene, progress_json={"phase": "Producing", "counts": {"acked": 5}})
    await at(scene, 0)
    return scene


def calls(scene: Any, *verbs: str) -> list[tuple[str, str, str]]:
    return [call for call in scene.kube.calls if call[0] in verbs]


async def test_eviction_of_the_leader_is_told():
    scene = await begun_there({"at": "1s", "fault": "Evict", "target": LEADER_OF})
    evicted = []

    async def evict(namespace: str, name: str, *, uid: str) -> None:
        evicted.append((namespace, name, uid))

    scene.kube.evict = evict
    status = await at(scene, 1)
    assert evicted == [("kafka", "main-broker-1-0", "p1")]
    assert status.drill[0].result == "Injected"


async def test_eviction_refused_by_budget_is_told():
    scene = await begun_there({"at": "1s", "fault": "Evict", "target": {"broker": 0}})

    async def evict(*_: Any, **__: Any) -> None:
        text = "POST /x answered: Cannot evict pod as it would violate the pod's disruption budget."
        raise Unavailable(429, text)

    scene.kube.evict = evict
    status = await at(scene, 1)
    mark = status.drill[0]
    assert mark.result == "Refused"
    assert mark.message == (
        "The drill did not inject its fault, because the API server refused to evict pod "
        "main-broker-0-0: Cannot evict pod as it would violate the pod's disruption budget. When "
        "all brokers are ready, so that the PodDisruptionBudget allows an eviction, create another "
        "Verification."
    )


async def test_eviction_names_the_pod_by_uid():
    sent: list[HttpRequest] = []

    class Transport:
        async def send(self, request: HttpRequest) -> Any:
            sent.append(request)
            raise Unavailable(429, "no")

    with pytest.raises(ApiError):
        await KubeApi(Transport()).evict("kafka", "b-0", uid="p1")  # type: ignore[arg-type]
    assert sent[0].path == "/api/v1/namespaces/kafka/pods/b-0/eviction"
    assert b'"preconditions":{"uid":"p1"}' in sent[0].body
    assert b'"apiVersion":"policy/v1","kind":"Eviction"' in sent[0].body


def with_claim(scene: Any, broker: int) -> None:
    meta = {"name": f"data-main-broker-{broker}-0", "namespace": "kafka", "uid": f"c{broker}"}
    spec = {"resources": {"requests": {"storage": "1Gi"}}}
    scene.kube.put(VOLUME_CLAIMS, {"metadata": meta, "spec": spec})


async def test_volume_is_lost_by_claim_and_pod():
    scene = await begun_there({"at": "1s", "fault": "LoseVolume", "target": {"broker": 2}})
    with_claim(scene, 2)
    status = await at(scene, 1)
    assert status.drill[0].result == "Injected", status.drill
    assert calls(scene, "delete", "force") == [
        ("delete", "persistentvolumeclaims", "data-main-broker-2-0"),
        ("force", "pods", "main-broker-2-0"),
    ]


async def test_volume_that_is_needed_is_kept():
    scene = await begun_there({"at": "1s", "fault": "LoseVolume", "target": {"broker": 2}})
    with_claim(scene, 2)
    image = scene.controller.image
    (key,) = image.partitions
    state = replace(image.partitions[key], isr=(1, 2), min_isr=2)
    scene.controller.image = replace(image, partitions=image.partitions.set(key, state))
    status = await at(scene, 1)
    assert status.drill[0].result == "Refused"
    assert "partition orders-0 would have 1 replicas in sync" in status.drill[0].message
    assert calls(scene, "delete", "force") == []


# --- the operator's own death -----------------------------------------------------------------


def with_own_pod(scene: Any) -> None:
    meta = {"name": "op-1", "namespace": "ops", "uid": "o1"}
    scene.kube.put(PODS, {"metadata": meta, "spec": {"containers": [{"name": "operator"}]}})


def next_term(scene: Any) -> None:
    """Another operator leads, of the next controller epoch."""
    image = scene.controller.image
    epoch = ControllerEpoch(image.controller_epoch + 1)
    scene.controller.image = replace(image, controller_epoch=epoch)


async def test_leading_operator_is_deleted_once():
    scene = await begun_there({"at": "1s", "fault": "KillOperator"})
    with_own_pod(scene)
    status = await at(scene, 1)
    assert calls(scene, "force") == [("force", "pods", "op-1")]
    assert "deleted the leading operator's pod op-1" in status.drill[0].message
    next_term(scene)
    assert (await at(scene, 9)).drill[0].result == "Injected"
    assert len(calls(scene, "force")) == 1


async def test_operator_killed_before_its_note_is_told():
    scene = await begun_there({"at": "1s", "fault": "KillOperator"})
    with_own_pod(scene)
    epoch = scene.controller.image.controller_epoch
    step_noted = {"number": 0, "fault": "KillOperator", "atMs": NOW_MS, "result": "Begun"}
    note(scene, steps=[{**step_noted, "epoch": epoch}])
    next_term(scene)
    status = await at(scene, 9)
    assert (status.drill[0].result, calls(scene, "force")) == ("Injected", [])
    assert f"epoch {epoch}; an operator leads with epoch {epoch + 1} now" in status.drill[0].message
    end(scene)
    assert (await at(scene, 10)).verdict == "Passed"


async def test_operator_that_still_leads_was_not_killed():
    scene = await begun_there({"at": "1s", "fault": "KillOperator"})
    epoch = scene.controller.image.controller_epoch
    step_noted = {"number": 0, "fault": "KillOperator", "atMs": NOW_MS, "result": "Begun"}
    note(scene, steps=[{**step_noted, "epoch": epoch}])
    assert (await at(scene, 9)).drill[0].result == "Unknown"


DRILLED = ({"fault": "KillBroker", "target": {"broker": 0}}, {"fault": "KillOperator"})


@pytest.mark.parametrize("dies_at", ["begun", "noted", "injected"])
@pytest.mark.parametrize("drilled", DRILLED, ids=lambda one: str(one["fault"]))
async def test_drill_goes_on_after_any_death(drilled: dict[str, Any], dies_at: str):
    """The operator dies when the drill has begun, when the fault is noted, or when its outcome is;
    the next one injects what is not noted, nothing twice, and the second fault in any case."""
    second = {"at": "5s", "fault": "KillBroker", "target": {"broker": 2}}
    scene = await begun_there({"at": "1s", **drilled}, second)
    with_own_pod(scene)
    epoch = scene.controller.image.controller_epoch
    begin = {"number": 0, "fault": drilled["fault"], "atMs": NOW_MS + 1_000, "epoch": epoch}
    if dies_at == "noted":
        note(scene, steps=[{**begin, "result": "Begun"}])
    elif dies_at == "injected":
        await at(scene, 1)
    next_term(scene)
    for seconds in (2, 5, 6):
        status = await at(scene, seconds)
    killed = [name for _, _, name in calls(scene, "force")]
    first = "op-1" if drilled["fault"] == "KillOperator" else "main-broker-0-0"
    assert killed == ([] if dies_at == "noted" else [first]) + ["main-broker-2-0"]
    lost = dies_at == "noted" and drilled["fault"] == "KillBroker"
    assert [one.result for one in status.drill] == ["Unknown" if lost else "Injected", "Injected"]


async def test_local_term_ends_once_outcome_is_noted():
    scene = await begun_there({"at": "1s", "fault": "KillOperator"}, local_faults=True)
    seen = []
    scene.term.end_term = lambda: seen.append(
        scene.kube.find(VERIFICATIONS, "kafka", "check")["status"]["drillRecord"]["steps"][0]
    )
    await at(scene, 1)
    assert [one["result"] for one in seen] == ["Injected"]


# --- the API server ----------------------------------------------------------------------------


async def test_api_calls_are_cut_once_outcome_is_noted():
    scene = await begun_there({"at": "1s", "fault": "CutApiServer", "for": "20s"})
    seen: list[Any] = []

    def cut(span_ms: int) -> None:
        seen.append((span_ms, noted_result(scene)))

    scene.term.cut_api = cut
    status = await at(scene, 1)
    assert seen == [(20_000, "Injected")]
    assert noted(scene)["steps"][0]["untilMs"] == NOW_MS + 21_000
    assert status.drill[0].until == "1970-01-12T13:47:01Z"
    await at(scene, 2)
    assert len(seen) == 1


def noted_result(scene: Any) -> str:
    status = scene.kube.find(VERIFICATIONS, "kafka", "check")["status"]
    return str(status["drillRecord"]["steps"][0]["result"])


async def test_outcome_that_cannot_be_noted_cuts_nothing(monkeypatch: pytest.MonkeyPatch):
    scene = await begun_there({"at": "1s", "fault": "CutApiServer"})
    seen: list[int] = []
    scene.term.cut_api = seen.append
    merge_status, wrote = scene.kube.merge_status, []

    async def once(*args: Any, **named: Any) -> Any:
        wrote.append(1)
        if len(wrote) > 1:
            raise Conflict(409, "changed")
        return await merge_status(*args, **named)

    scene.kube.merge_status = once
    await at(scene, 1)
    scene.kube.merge_status = merge_status
    assert seen == []
    assert (await at(scene, 2)).drill[0].result == "Unknown"


async def taken(source: Any, lines: list[bytes]) -> None:
    async for line in source:
        lines[len(lines) :] = [line]


async def test_outage_ends_by_itself():
    clock = [0]
    outage = ApiOutage(lambda: clock[0])
    sent = []

    class Transport:
        async def send(self, request: HttpRequest) -> Any:
            sent.append(request.path)

        async def watch(self, request: HttpRequest) -> Any:
            yield b"1"
            clock[0] = 0
            outage.begin(1_000)
            yield b"2"

    inner: Any = Transport()
    transport, request = outage.around(inner), HttpRequest(method="GET", path="/x")
    await transport.send(request)
    lines: list[bytes] = []
    with pytest.raises(Unavailable):
        await taken(transport.watch(request), lines)
    with pytest.raises(Unavailable, match="cuts this operator off"):
        await transport.send(request)
    assert (sent, lines) == (["/x"], [b"1"])
    outage.begin(3_600_000)
    clock[0] = 60_000
    await transport.send(request)


# --- faults in a broker -----------------------------------------------------------------------


def reports(scene: Any, broker: int, number: int) -> None:
    figures = BrokerFigures(drill=number)
    contact = Contact(broker_epoch=BrokerEpoch(1), last_ms=0, figures=figures)
    scene.controller.soft.contacts[broker] = contact


async def test_broker_obeys_an_order_that_it_reports(monkeypatch: pytest.MonkeyPatch):
    scene = await begun({"at": "1s", "fault": "CutLinks", "target": LEADER_OF, "for": "7s"})
    orders = scene.controller.drill_orders

    async def sleep(_: float) -> None:
        assert orders.live is not None
        reports(scene, orders.live.broker_id, orders.live.number)

    monkeypatch.setattr(drill_faults.asyncio, "sleep", sleep)
    status = await at(scene, 1)
    assert (orders.live.broker_id, orders.live.fault, orders.live.left_ms) == (1, "CutLinks", 7_000)
    assert status.drill[0].result == "Injected"
    assert status.drill[0].until == "1970-01-12T13:46:48Z"
    scene.controller.now_ms += 6_000
    assert orders.live.left_ms == 1_000
    scene.controller.now_ms += 1_000
    assert orders.live is None


async def test_silent_broker_gets_no_order(monkeypatch: pytest.MonkeyPatch):
    scene = await begun({"at": "1s", "fault": "FillDisk", "target": {"broker": 0}})

    async def sleep(_: float) -> None:
        reports(scene, 0, 5)

    monkeypatch.setattr(drill_faults.asyncio, "sleep", sleep)
    status = await at(scene, 1)
    assert status.drill[0].result == "Refused"
    assert "because broker 0 did not accept the order within 5 s" in status.drill[0].message
    assert scene.controller.drill_orders.live is None


async def test_one_order_at_a_time(monkeypatch: pytest.MonkeyPatch):
    steps = [
        {"at": f"{at_s}s", "fault": "SlowLinks", "target": {"broker": 0}, "for": "20s"}
        for at_s in (1, 2)
    ]
    scene = await begun(*steps)
    orders = scene.controller.drill_orders

    async def sleep(_: float) -> None:
        assert orders.live is not None
        reports(scene, 0, orders.live.number)

    monkeypatch.setattr(drill_faults.asyncio, "sleep", sleep)
    await at(scene, 1)
    status = await at(scene, 2)
    assert [one.result for one in status.drill] == ["Injected", "Refused"]
    assert (
        status.drill[1].message
        == "The drill did not inject its fault, because its earlier fault SlowLinks of broker 0 "
        "had not ended yet. State a later `at` for the fault in another Verification."
    )


@pytest.mark.parametrize(
    ("step", "options", "why"),
    [
        ({"fault": "Evict", "target": {"broker": 0}}, {"local_faults": True}, "needs Kubernetes"),
        ({"fault": "CutApiServer"}, {"local_faults": True}, "needs Kubernetes"),
        ({"fault": "KillOperator"}, {"shared_drills": False}, "verification.drills=true"),
        ({"fault": "Evict", "target": {"broker": 0}}, {"shared_drills": False}, "drills=true"),
        ({"fault": "CutLinks", "target": {"broker": 0}, "for": "2m"}, {}, "60 s at most"),
        ({"fault": "CutApiServer", "for": "61s"}, {}, "60 s at most"),
    ],
)
async def test_fault_without_means_starts_no_driver(step, options, why):
    scene = on_kubernetes(a_drill({"at": "1s", **step}, local=False), **options)
    status = await at(scene, -5)
    assert (status.phase, status.conditions[0].reason) == ("Failed", "FaultNotOffered")
    assert why in status.conditions[0].message
    assert scene.made("jobs") == []
