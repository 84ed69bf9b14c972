"""A bug of the operator's: what it costs whom, and that nothing swallows it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.plimsoll_operator.shown import Shows, metrics_of
from tests.plimsoll_operator.test_controller_server import Peer, a_listener, a_registration, serving

from plimsoll_core.messages.requests import RegisterBroker, Registered
from plimsoll_operator import control_failures
from plimsoll_operator.control_failures import ControlFailures, surface
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.status.operator_metrics import FAILING, Metrics

WAIT_S = 30


def a_bug(*_: object) -> Any:
    raise AssertionError("a bug")


async def test_bug_in_request_closes_only_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (server, _):
        listener = await a_listener()
        port = listener.sockets[0].getsockname()[1]
        first, second = await Peer.to(server), await Peer.to(server)
        with monkeypatch.context() as patched:
            patched.setattr(Controller, "submit", a_bug)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await first.command(a_registration(port))
        assert server.failures.counts == {"RegisterBroker": 1}
        assert "AssertionError: a bug" in caplog.text
        assert isinstance((await second.command(a_registration(port))).answer, Registered)
        await first.close()
        await second.close()
        listener.close()


async def test_bug_in_awaited_work_closes_its_connection() -> None:
    async def enrich(request: RegisterBroker) -> RegisterBroker:
        raise AssertionError("a bug")

    async with serving(enrich=enrich) as (server, _):
        peer = await Peer.to(server)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await peer.command(a_registration(1))
        assert server.failures.counts == {"RegisterBroker": 1}
        await peer.close()


async def test_bug_in_our_callback_ends_the_operator() -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException] = loop.create_future()
    surface(loop, ended.set_result)
    try:
        loop.call_soon(Metrics().commits.left_isrs, ("kafka", "main"), None, 1)
        async with asyncio.timeout(WAIT_S):
            assert isinstance(await ended, AttributeError)
    finally:
        loop.set_exception_handler(None)


async def test_librarys_exception_is_logged_and_left_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    ended: list[BaseException] = []
    surface(loop, ended.append)
    try:
        loop.call_soon(a_bug)
        after = loop.create_future()
        loop.call_soon(after.set_result, None)
        await after
    finally:
        loop.set_exception_handler(None)
    assert ended == []
    assert "AssertionError: a bug" in caplog.text


def test_failure_counter_exists_before_first_failure() -> None:
    shows = Shows()
    shows.bugs = {"Heartbeat": 2}
    text = metrics_of(shows).render().decode()
    for kind in FAILING:
        count = 2.0 if kind == "Heartbeat" else 0.0
        assert f'plimsoll_operator_handler_failures_total{{request="{kind}"}} {count}' in text


def test_bug_in_one_metric_spares_the_others() -> None:
    class Broken(Shows):
        def blocked(self) -> list[Any]:
            return a_bug()

    shows = Broken(main={0, 1, 2})
    text = metrics_of(shows).render().decode()
    assert 'plimsoll_cluster_known{cluster="main",namespace="kafka"} 1.0' in text
    assert 'plimsoll_operator_handler_failures_total{request="Metrics"} 1.0' in text
    assert "plimsoll_reconcile_waiting" in text
    assert "plimsoll_blocked_actions" not in text
    assert [str(error) for error in shows.errors] == ["a bug"]


async def test_repeated_bug_is_counted_and_logged_boundedly(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In one second, however long it takes on a busy machine.
    monkeypatch.setattr(control_failures, "TRACEBACK_EVERY_S", 3_600.0)
    failures = ControlFailures()
    for _ in range(5):
        failures.met("ReconcileTopic", AssertionError("a bug"), "one pass")
        failures.met("ReconcileUser", AssertionError("another"), "one pass")
    assert failures.counts == {"ReconcileTopic": 5, "ReconcileUser": 5}
    assert caplog.text.count("AssertionError: a bug") == 1
    assert caplog.text.count("AssertionError: another") == 1
