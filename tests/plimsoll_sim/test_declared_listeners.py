"""Listeners that a LogCluster declares, on simulated clusters: opened, registered, closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plimsoll_core.cluster.listener_peers import CLIENTS, REPLICATION
from plimsoll_operator.api.listeners import DeclaredListener
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.scenario.cluster_verbs import OPTIONS
from plimsoll_sim.scenario.stage import Stage

SAME_PORT = DeclaredListener(name="internal", port=9092)
ANOTHER = DeclaredListener(name="more", port=9095)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        options: RunOptions = OPTIONS
        made.begin(options)
        made.world.start_all()
        hosts = made.world.brokers.values()
        made.until(lambda: all(made.takes_part(host) for host in hosts), "every broker serves")
        yield made


def declare(stage: Stage, *listeners: DeclaredListener) -> None:
    objects = stage.world.objects
    objects.edit(LOG_CLUSTERS, objects.name, listeners=listeners or None)


def registered(stage: Stage, *names: str) -> bool:
    """Whether every broker that takes part has registered exactly these endpoints of clients'."""
    wanted = {REPLICATION, *names}
    brokers = [broker for broker in stage.image.brokers.values() if broker.active]
    return len(brokers) == 3 and all(
        {endpoint.name for endpoint in broker.endpoints} == wanted for broker in brokers
    )


def test_brokers_open_register_and_close_what_is_declared(stage: Stage) -> None:
    assert registered(stage, CLIENTS)
    declare(stage, SAME_PORT, ANOTHER)
    stage.until(lambda: registered(stage, "internal", "more"), "both are registered")
    epochs = {broker.id: broker.broker_epoch for broker in stage.image.brokers.values()}
    declare(stage, SAME_PORT)
    stage.until(lambda: registered(stage, "internal"), "one is registered")
    declare(stage)
    stage.until(lambda: registered(stage, CLIENTS), "the implicit one is registered")
    after = {broker.id: broker.broker_epoch for broker in stage.image.brokers.values()}
    assert after == epochs, "no lifetime ended for it"


def test_killed_broker_returns_with_declared_listeners(stage: Stage) -> None:
    declare(stage, SAME_PORT, ANOTHER)
    stage.until(lambda: registered(stage, "internal", "more"), "both are registered")
    host = next(iter(stage.world.brokers.values()))
    host.kill()
    stage.until(lambda: not stage.takes_part(host), "it is fenced")
    stage.world.start_broker(host)
    stage.until(lambda: registered(stage, "internal", "more"), "it has them again")


def test_listeners_are_declared_despite_unreachable_broker(stage: Stage) -> None:
    host = next(iter(stage.world.brokers.values()))
    host.kill()
    stage.until(lambda: not stage.takes_part(host), "it is fenced")
    declare(stage, SAME_PORT, ANOTHER)
    stage.until(lambda: len(stage.image.listeners) == 2, "they are committed")
    stage.world.start_broker(host)
    stage.until(lambda: registered(stage, "internal", "more"), "all have them")
