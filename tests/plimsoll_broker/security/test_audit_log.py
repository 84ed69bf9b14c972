"""The audit log and what is measured of logins and rights."""

from __future__ import annotations

import json
import logging

import pytest
from tests.plimsoll_broker.security.secured import Secured, connected

from plimsoll_broker.node.metric_rows import PREFIX
from plimsoll_broker.node.security_metrics import security_metrics
from plimsoll_broker.security import audit_log
from plimsoll_broker.security.audit_log import EVENTS_MAX, AuditEvent, AuditLog


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(record.message) for record in caplog.records]


def a_denial(number: int = 0) -> AuditEvent:
    return AuditEvent("Denied", "User:alice", "10.0.0.1", "secured", "Read", f"Topic:{number}")


async def test_what_happens_often_is_one_line_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "plimsoll.audit")
    audit = AuditLog(7)
    for _ in range(1_000):
        audit.note(a_denial())
    assert not caplog.records  # not in the request's way
    audit.close()
    (line,) = events(caplog)
    assert (line["count"], line["broker"], line["decision"]) == (1_000, 7, "Denied")


async def test_flood_of_different_events_is_bounded_and_what_is_dropped_is_counted() -> None:
    audit = AuditLog(7)
    for number in range(EVENTS_MAX + 50):
        audit.note(a_denial(number))
    assert len(audit._counts) == EVENTS_MAX
    assert audit.dropped == 50
    audit._flush(0.0, audit_log.LINES_MAX)
    assert len(audit._counts) == EVENTS_MAX - audit_log.LINES_MAX
    audit.close()


async def test_name_of_a_hostile_client_cannot_break_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "plimsoll.audit")
    audit = AuditLog(7)
    audit.note(a_denial()._replace(resource='Topic:"\n{}\x00'))
    audit.close()
    (record,) = caplog.records
    assert "\n" not in record.message
    assert json.loads(record.message)["resource"] == 'Topic:"\n{}\x00'


async def test_logins_and_denials_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "plimsoll.audit")
    secured = Secured()
    async with secured.served() as server, connected(server) as alice, connected(server) as eve:
        await alice.log_in()
        await eve.log_in(password="guess")
        assert await alice.topics() == {}
        await alice.topics("orders")
    secured.authority.close()
    found = {one.name: one.samples[0].value for one in security_metrics(PREFIX, secured.authority)}
    assert found[PREFIX + "logins"] == 1
    assert found[PREFIX + "logins_failed"] == 1
    assert found[PREFIX + "authorizations_denied"] == 1  # what a list leaves out is no attempt
    said = {(line["decision"], line.get("resource")) for line in events(caplog)}
    assert said == {("LoggedIn", None), ("LoginFailed", None), ("Denied", "Topic:orders")}
