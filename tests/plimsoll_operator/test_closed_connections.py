"""Who reaches the controllers' port cannot fill the operator's log."""

import logging

import pytest

from plimsoll_operator.controller.controller_server import ClosedConnections


def test_closed_connections_log_one_line_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = (100 + number / 10 for number in range(25))
    closed = ClosedConnections(lambda: next(times))
    with caplog.at_level(logging.INFO, "plimsoll.controller_server"):
        for number in range(25):
            closed.tell(("192.0.2.1", number), "not a control message")
    closed = (
        "the controller closed the connection of the peer at 192.0.2.1:{}, which connects again "
        "by itself if it is a broker: not a control message{}"
    )
    more = " (9 similar lines were left out)"
    assert [one.getMessage() for one in caplog.records] == [
        closed.format(0, ""),
        closed.format(10, more),
        closed.format(20, more),
    ]
