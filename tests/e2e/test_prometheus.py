"""A real Prometheus and Alertmanager watch pods: those that the PodMonitors of the chart select.

One cluster lives through all tests of the file, in this order: a scale-up, a roll and a drain fire
nothing; a paused broker and a broker that dies together with the operator do.  Prometheus runs
beside the node: it reaches pods by their addresses, as the kubelet does.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dev.grafana import dashboards
from dev.kubectl import wait_for
from dev.panels import Window, looked_up
from dev.prometheus import Prometheus
from tests.e2e.clients import produce
from tests.e2e.drill import SYSTEM, Drill, kill_operator
from tests.e2e.faults import full, no_api_server, paused, slow_replication
from tests.e2e.test_cli import OnCall
from tests.e2e.watched import OPERATORS, PATIENT_S, SMALL, Watched, watched
from tests.monitored import FIRES_S, ISR_ALERT, RESOLVES_S, Alerts, empty_panels

__all__ = ("watched",)

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("USE_CURRENT_CONTEXT") == "1",
        reason="pods and processes are the local node's",
    ),
    pytest.mark.timeout(1500),
    pytest.mark.long,
]
FAILOVER_S = 20.0
"""The Lease of an operator that was killed runs out, and the other takes over."""
TROUBLE = {
    "plimsoll_stalled",
    "plimsoll_verification_violated",
    "plimsoll_blocked_actions",
    "plimsoll_group_lag_records",
    "plimsoll_group_committed_position",
    "plimsoll_group_stuck_seconds",
}
"""Whose series are there with trouble or with groups alone."""
STARVED_S = 2.0
"""Two heartbeats that a process did not send because the machine did not let it run."""


def test_series_say_whose_they_are(watched: Watched) -> None:
    """The LogCluster's namespace and name on all of them, and the broker's number on a broker's."""
    mine = f'namespace="{watched.drill.namespace}",cluster="main"'
    brokers = watched.prometheus.query(f"plimsoll_broker_ready{{{mine}}}")
    assert sorted(one.labels["broker"] for one in brokers) == ["0", "1", "2"]
    known = watched.prometheus.query(f"plimsoll_cluster_known{{{mine}}}")
    assert len({one.labels["pod"] for one in known}) == OPERATORS
    assert [one["name"] for one in watched.prometheus.rules() if one["health"] != "ok"] == []
    asked = {
        name
        for one in watched.prometheus.rules()
        for name in re.findall(r"\bplimsoll_\w+", one["query"])
    }
    assert asked - watched.prometheus.names() - TROUBLE == set()


def test_scale_up_roll_and_drain_fire_nothing(watched: Watched) -> None:
    drill, alerts = watched.drill, watched.alerts()
    drill.change(count=4)
    wait_for("broker 3 to be filled", watched.settled(4), PATIENT_S)
    before = uids(drill)
    annotation = f"plimsoll.dev/restart={time.time_ns()}"
    drill.cluster.kubectl("annotate", "logcluster", "main", "-n", drill.namespace, annotation)

    def restarted() -> bool | None:
        now = uids(drill)
        return all(now.get(one) not in (None, uid) for one, uid in before.items()) or None

    wait_for("every broker to be restarted", restarted, PATIENT_S)
    wait_for("all of them to be back", watched.settled(4), PATIENT_S)
    drill.change(count=3)
    wait_for("broker 3 to be drained", watched.settled(3), PATIENT_S)
    assert [found for found in alerts.fired() if not starved(watched, *found)] == []


def uids(drill: Drill) -> dict[int, str]:
    found = {broker: drill.pod(broker) for broker in range(4)}
    return {broker: pod["metadata"]["uid"] for broker, pod in found.items() if pod}


def starved(watched: Watched, alert: str, labels: dict[str, str]) -> bool:
    """Whether a broker really left ISRs, because a busy machine did not let its process run, or
    the operator's: their event loops were late by seconds."""
    if alert != ISR_ALERT or labels["cause"] not in ("fenced", "lag"):
        return False
    since = f"[{time.time() - watched.begin_s:.0f}s]"
    own = f'namespace="{labels["namespace"]}",cluster="main",broker="{labels["broker"]}"'
    held = [
        *watched.prometheus.query(
            f"max_over_time(plimsoll_broker_loop_held_seconds_max{{{own}}}{since})"
        ),
        *watched.prometheus.query(f"max_over_time(plimsoll_operator_loop_held_seconds_max{since})"),
    ]
    return any(one.last > STARVED_S for one in held)


def resolves(watched: Watched, alerts: Alerts, broker: int) -> None:
    wait_for("all to be in sync", watched.settled(3), PATIENT_S)
    alerts.wait(ISR_ALERT, firing=False, timeout_s=RESOLVES_S, broker=str(broker))


def test_operator_and_broker_death_fires_isr_alert(watched: Watched) -> None:
    """The operator that commits the shrinks is one that has counted none before."""
    alerts = watched.alerts()
    pid = watched.drill.process(2)
    kill_operator(watched.drill)
    os.kill(pid, signal.SIGKILL)
    alert = alerts.wait(ISR_ALERT, firing=True, timeout_s=FAILOVER_S + FIRES_S, broker="2")
    assert watched.own.items() <= alert.labels.items()
    resolves(watched, alerts, 2)


def test_etcd_panels_show_data(watched: Watched) -> None:
    """All others are tested where there is a local cluster."""
    (dashboard,) = [one for one in dashboards() if one.name == "controller"]
    window = Window(begin_s=watched.begin_s, end_s=time.time())
    found = looked_up(watched.prometheus, dashboard, watched.own, window)
    assert empty_panels(found) == []


# --- on call: each fault is named by an alert, a dashboard and `kubectl plimsoll` -----------------


@pytest.fixture(scope="module")
def person(watched: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCall]:
    drill = watched.drill
    home = tmp_path_factory.mktemp("on-call")
    found = OnCall(drill.cluster, drill.namespace, home, trusted=True)
    yield found
    drill.cluster.kubectl("delete", "rolebinding", found.bound, "-n", SYSTEM)


class Case:
    """A fault that somebody is called for: `named` waits until something names its cause, and
    prints for how long that took."""

    def __init__(self, watched: Watched, person: OnCall, fault: str) -> None:
        self.watched, self.person, self.fault = watched, person, fault
        self._began_s = time.monotonic()

    def named(self, by: str, probe: Callable[[], Any]) -> Any:
        def found() -> Any:
            try:
                return probe() or None
            except AssertionError:
                return None

        said = wait_for(f"{self.fault}: {by}", found, PATIENT_S, every_s=1)
        print(f"{self.fault} | {time.monotonic() - self._began_s:.0f} s | {by} | {said}")
        return said

    def alert(self, alert: str, **labels: str) -> None:
        """It fires, or would once it has been so for long enough."""
        wanted = {**self.watched.own, **labels}
        shown = ",".join(f'{name}="{value}"' for name, value in wanted.items())
        query = f'ALERTS{{alertname="{alert}",{shown}}}'
        self.named(f"alert {alert}", lambda: [s.labels for s in self.prometheus.query(query)])

    def panel(self, board: str, title: str, good: Callable[[dict[str, float]], Any]) -> None:
        """What it shows now: values by legend and labels."""
        (dashboard,) = [one for one in dashboards() if one.name == board]

        def now() -> Any:
            end_s = time.time()
            window = Window(begin_s=end_s - 5, end_s=end_s)
            found = looked_up(self.prometheus, dashboard, self.watched.own, window)
            (shown,) = [found[name] for name in found if name.endswith(f"/{title}")]
            values = {
                " ".join([one.legend, *series.labels.values()]): series.last
                for one in shown
                for series in one.series
            }
            return good(values)

        self.named(f"panel {board}/{title}", now)

    @property
    def prometheus(self) -> Prometheus:
        return self.watched.prometheus

    def broker(self, number: int) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.person.data("brokers")["brokers"]
        return next(row for row in rows if row["broker"] == number)

    def left(self, broker: int) -> str | None:
        """Why it left the ISR last, by `kubectl plimsoll why`, of a partition where it is away."""
        rows = self.person.data("topic", "orders")["partitions"]
        gone = [row["partition"] for row in rows if broker not in row["isr"]]
        if not gone:
            return None
        return str(self.person.data("why", "orders", str(gone[0]))["changes"][-1]["why"])


def test_paused_broker_fires_isr_alert_and_resolves(watched: Watched, person: OnCall) -> None:
    alerts, case = watched.alerts(), Case(watched, person, "a paused broker")
    with paused(watched.drill, 1):
        alert = alerts.wait(ISR_ALERT, firing=True, broker="1")
        assert {**watched.own, "cause": "fenced"}.items() <= alert.labels.items()
        case.alert("PlimsollBrokerFenced", broker="1")
        case.panel("fleet", "Brokers fenced", lambda found: max(found.values()) == 1)
        case.named("kubectl plimsoll brokers", lambda: case.broker(1)["fenced"])
        case.named("kubectl plimsoll why", lambda: case.left(1) == "fenced")
    resolves(watched, alerts, 1)


def test_full_disk_is_named_with_its_broker(watched: Watched, person: OnCall) -> None:
    case = Case(watched, person, "a full disk")
    drill = watched.drill
    with full(watched.volume):
        produce(drill.cluster, drill.namespace, "orders", ["x" * 1_000] * 500, acks=1)
        case.alert("PlimsollLogsOutOfService", broker=str(SMALL))
        case.alert("PlimsollDiskFilling", broker=str(SMALL))
        case.alert(ISR_ALERT, broker=str(SMALL), cause="disk")
        case.panel("fleet", "Free share of the fullest disk", lambda f: min(f.values()) < 0.01)
        case.named("kubectl plimsoll brokers", lambda: case.broker(SMALL)["disk"])
        case.named("kubectl plimsoll why", lambda: case.left(SMALL) == "disk")
    wait_for("all to be in sync", watched.settled(3), PATIENT_S)


def test_broker_that_lags_is_named_with_its_cause(watched: Watched, person: OnCall) -> None:
    drill = watched.drill
    case = Case(watched, person, "a broker that lags")
    with slow_replication(drill, 1):
        produce(drill.cluster, drill.namespace, "orders", ["x" * 10_000] * 1_000, acks=1)
        case.alert(ISR_ALERT, broker="1", cause="lag")
        case.panel("broker", "How far its followers are behind", lambda f: max(f.values()) > 10)
        case.named("kubectl plimsoll why", lambda: case.left(1) == "lag")
        case.named("kubectl plimsoll topic", lambda: _behind(case, 1))
    wait_for("all to be in sync", watched.settled(3), PATIENT_S)


def _behind(case: Case, broker: int) -> bool:
    """Whether records are shown that a follower lacks."""
    rows = case.person.data("topic", "orders")["partitions"]
    return any(((row["behind"] or {}).get(str(broker)) or 0) > 0 for row in rows)


def test_operator_without_api_server_is_named(watched: Watched, person: OnCall) -> None:
    case = Case(watched, person, "an operator without API server")
    with no_api_server(watched.drill):
        case.alert("PlimsollNoActiveController")
        case.panel(
            "controller", "Answers of the API server",
            lambda found: [name for name, rate in found.items() if "none" in name and rate > 0],
        )  # fmt: skip
        case.named("kubectl plimsoll status", lambda: _no_answer(person))
    wait_for("all to be in sync", watched.settled(3), PATIENT_S)


def _no_answer(person: OnCall) -> str | None:
    """The sentence for people, where it names the API server."""
    said = person.run("status").stdout.splitlines()
    return next((line for line in said if "API server" in line), None)


def test_blocked_drain_is_named_with_remedy(watched: Watched, person: OnCall) -> None:
    case = Case(watched, person, "a blocked drain")
    watched.drill.change(count=2)
    try:
        case.panel(
            "moves-and-rolls",
            "What waits, and for what reason",
            lambda f: [n for n in f if "Drain" in n],
        )
        case.alert("PlimsollActionBlocked", action="Drain")
        case.named("kubectl plimsoll blocked", lambda: person.data("blocked")["blocked"])
    finally:
        watched.drill.change(count=3)
    wait_for("all to be in sync", watched.settled(3), PATIENT_S)
