"""Who reaches the controllers' port cannot fill the operator's log."""

import logging

import pytest

from plimsoll_operator.controller.closed_connections import ClosedConnections


def test_connections_that_are_closed_in_a_row_make_a_line_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = (100 + number / 10 for number in range(25))
    closed = ClosedConnections(lambda: next(times))
    with caplog.at_level(logging.INFO, "plimsoll.closed_connections"):
        for number in range(25):
            closed.tell(("192.0.2.1", number), "not a control message")
    assert [one.getMessage() for one in caplog.records] == [
        "closing ('192.0.2.1', 0): not a control message",
        "closing ('192.0.2.1', 10): not a control message (9 more since the last line)",
        "closing ('192.0.2.1', 20): not a control message (9 more since the last line)",
    ]
