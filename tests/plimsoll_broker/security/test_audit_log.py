"""The audit log and what is measured of logins and rights."""

from __future__ import annotations

import asyncio
import json
import logging
import threading

import pytest
from tests.plimsoll_broker.security.secured import Secured, connected

from plimsoll_broker.node.broker_metrics import security_metrics
from plimsoll_broker.node.metric_rows import PREFIX
from plimsoll_broker.security.audit_log import LINES_MAX, AuditEvent, AuditLog
from plimsoll_process.log_lines import ROOM


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(record.message) for record in caplog.records]


def a_denial(number: int = 0) -> AuditEvent:
    return AuditEvent("Denied", "User:alice", "10.0.0.1", "secured", "Read", f"Topic:{number}")


async def test_frequent_event_is_one_line_with_count(
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


async def test_flood_of_events_is_bounded_and_drops_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "plimsoll.audit")
    audit = AuditLog(7)
    for number in range(ROOM):
        audit.note(a_denial(number))
    assert audit.dropped["Denied"] == ROOM // 2
    assert sum(audit.dropped.values()) == ROOM // 2
    audit._write()
    assert len(caplog.records) == LINES_MAX
    assert events(caplog)[0]["left_out"] == ROOM // 2
    audit.close()
    assert len(caplog.records) == ROOM // 2


async def test_refusals_of_one_user_silence_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Metadata for made up names kept every login of others out of the audit log."""
    caplog.set_level(logging.INFO, "plimsoll.audit")
    audit = AuditLog(7)
    for number in range(10_000):
        audit.note(a_denial(number))
    audit.note(AuditEvent("LoggedIn", "User:victim", "10.0.0.2", "secured", reason="SCRAM"))
    audit.note(AuditEvent("LoginFailed", "", "10.0.0.3", "secured", claimed="admin"))
    audit.note(a_denial()._replace(principal="User:bob"))
    audit._write()
    audit.close()
    said = {
        (line["decision"], line.get("principal"), line.get("claimed")) for line in events(caplog)
    }
    assert said == {
        ("Denied", "User:alice", None),
        ("LoggedIn", "User:victim", None),
        ("LoginFailed", None, "admin"),
        ("Denied", "User:bob", None),
    }
    first = [
        line["principal"] for line in events(caplog)[:LINES_MAX] if line["decision"] == "Denied"
    ]
    assert "User:bob" in first[:2], "by turns"


async def test_failed_logins_of_one_address_silence_nobody_else() -> None:
    audit = AuditLog(7)
    failed = AuditEvent("LoginFailed", "", "10.0.0.9", "secured")
    for number in range(10_000):
        audit.note(failed._replace(claimed=f"guess-{number}"))
    before = audit.dropped["LoginFailed"]
    audit.note(failed._replace(host="10.0.0.3", claimed="admin"))
    assert audit.dropped["LoginFailed"] == before > 0
    audit.close()


async def test_refusals_in_threads_are_bounded_by_user(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "plimsoll.audit")
    audit = AuditLog(7)

    def hostile() -> None:
        for number in range(10_000):
            audit.note(a_denial(number))
        audit.note(a_denial()._replace(principal="User:bob"))

    # Nothing of it arrives before the thread has ended.
    thread = threading.Thread(target=hostile)
    thread.start()
    thread.join()
    await asyncio.sleep(0)
    assert audit.dropped["Denied"] > 0
    audit.close()
    assert "User:bob" in {line["principal"] for line in events(caplog)}


async def test_failed_login_line_shows_claimed_user_escaped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "plimsoll.audit")
    secured = Secured()
    async with secured.served() as server:
        for user in ("alice", "x" * 300, 'a"\n\x1b[31m'):
            async with connected(server) as eve:
                await eve.log_in(user, password="guess")
    secured.authority.close()
    assert [line["claimed"] for line in events(caplog)] == ["alice", "x" * 200, 'a"\n\x1b[31m']
    assert all("\n" not in record.message for record in caplog.records)
    assert all("\x1b" not in record.message for record in caplog.records)


async def test_hostile_client_name_cannot_break_a_line(
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
