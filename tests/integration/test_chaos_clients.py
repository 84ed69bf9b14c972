"""Programs as clients of chaos: what they print is heard, and one that ends by itself is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.integration.chaos_clients.frame import (
    Client,
    Place,
    PrintingReader,
    PrintingWriter,
    Record,
)
from tests.integration.local_cluster import wait_for

UNTIL_TOLD = "; import sys; sys.stdout.flush(); sys.stdin.read()"
PRODUCER = """\
print('{"acked": [2, 7, 40, "k"]}'); print('{"acked": [2, null, 41, null]}')
print('{"failed": "timed out"}'); print('{"left": 3}')"""
CONSUMER = """print('{"read": [1, 5]}'); print('{"refused": "a rebalance"}')"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(bootstrap="", work=tmp_path, seed=1, cooperative=False)


def ended(client: Client) -> None:
    client.start()
    wait_for("it works", client.begun.is_set)
    client.end()


def test_producer_output_equals_its_acknowledgements(place: Place) -> None:
    writer = PrintingWriter(place, "plain", 0, (sys.executable, "-c", PRODUCER + UNTIL_TOLD))
    ended(writer)
    assert writer.acked == {2: [Record(7, b"k", b"40:"), Record(None, None, b"41:")]}
    assert (writer.failed, writer.left) == (["timed out"], 3)


def test_what_a_consumer_prints_is_what_it_read(place: Place) -> None:
    reader = PrintingReader(place, 1, (sys.executable, "-c", CONSUMER + UNTIL_TOLD))
    ended(reader)
    assert reader.seen == {1: {5}}
    assert (reader.refused, reader.failed) == (["a rebalance"], [])


def test_client_ending_early_has_failed(place: Place) -> None:
    reader = PrintingReader(place, 0, (sys.executable, "-c", CONSUMER))
    reader.start()
    wait_for("it ended", lambda: reader.failed)
    reader.end()
    assert "ended by itself with 0" in reader.failed[0]
