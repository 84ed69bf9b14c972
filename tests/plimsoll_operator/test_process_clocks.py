"""A host's own clocks, handed in, are the only ones that statuses, Leases and Events show."""

from typing import Any

from tests.plimsoll_operator.builders import a_cluster
from tests.plimsoll_operator.rolling import NEW, declare
from tests.plimsoll_operator.rolling import a_cluster as running_cluster
from tests.plimsoll_operator.scripted_kube import ScriptedKube

from plimsoll_operator.api.conditions import condition, micro_timestamp, milliseconds, timestamp
from plimsoll_operator.api.topic import TopicStatus
from plimsoll_operator.kube.resources import LEASES, TOPICS
from plimsoll_operator.leadership.lease import Lease
from plimsoll_operator.status.events import Events, Occurrence
from plimsoll_operator.status.status_writer import StatusDraft, StatusWriter, Target

LONG_AGO_MS = 981_173_106_789
LONG_AGO = "2001-02-03T04:05:06Z"


class HostClock:
    """A wall clock that stands still until it is set."""

    def __init__(self) -> None:
        self.ms = LONG_AGO_MS

    def __call__(self) -> int:
        return self.ms


def test_micro_timestamp_is_read_back_to_the_millisecond():
    assert timestamp(LONG_AGO_MS) == LONG_AGO
    assert micro_timestamp(LONG_AGO_MS) == "2001-02-03T04:05:06.789000Z"
    assert milliseconds(micro_timestamp(LONG_AGO_MS)) == LONG_AGO_MS


async def test_lease_vacancy_uses_the_given_clock():
    api, clock = ScriptedKube(), HostClock()
    first = Lease(api, namespace="kafka", name="main-1", identity="a", wall_ms=clock)
    await first.acquire()
    await first.release()
    assert api.find(LEASES, "kafka", "main-1")["spec"]["renewTime"] == micro_timestamp(LONG_AGO_MS)
    clock.ms += 9_000
    second = Lease(api, namespace="kafka", name="main-1", identity="b", wall_ms=clock)
    assert (await second.acquire()).vacant_ms == 9_000


async def test_status_and_event_use_the_given_clock():
    api, clock = ScriptedKube(), HostClock()
    meta = {"name": "orders", "namespace": "kafka", "uid": "u1"}
    api.put(TOPICS, {"metadata": meta, "spec": {"clusterRef": {"name": "main"}}})
    status = TopicStatus(conditions=(condition("Ready", True, "Serving", "x"),))
    draft = StatusDraft(uid="u1", status=status, generation=1, shown=(), version="")
    await StatusWriter(api, lambda _: draft, clock).write(Target(TOPICS, "kafka", "orders"))
    (ready,) = api.find(TOPICS, "kafka", "orders")["status"]["conditions"]
    assert ready["lastTransitionTime"] == LONG_AGO
    events = Events(api, "x", clock)
    events.add(a_cluster(), Occurrence(key="k", reason="R", message="m"))
    await events.flush()
    (made,) = [body for (kind, _, _), body in api.objects.items() if kind == "events"]
    assert made["eventTime"] == micro_timestamp(LONG_AGO_MS)


async def test_waiting_restart_uses_the_terms_clock():
    three = await running_cluster((0, 1, 2))
    three.scene.term.now_ms = HostClock()
    declare(three, **NEW, maintenance={"suspended": True})
    await three.look()
    rows: Any = three.scene.term.shown.blocked["Restart"]
    assert {row.since for row in rows} == {LONG_AGO}
