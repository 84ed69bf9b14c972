"""Connections whose kernels take only so much: their transports say so, as asyncio's do."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.plimsoll_sim.test_network import Peer, Two

from plimsoll_net import tls_connection, tls_transport
from plimsoll_sim.engine.determinism import instead
from plimsoll_sim.environment.send_buffers import SendBuffers, bounded, smaller_limits
from plimsoll_sim.runs.run import run

SIZES = SendBuffers(100, 200)
DATA = bytes(range(256)) * 4


class Writer(Peer):
    """`paused`: what it was told, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.paused: list[bool] = []

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)


@contextmanager
def connected(sizes: SendBuffers = SIZES) -> Iterator[Two]:
    """Connected, with a client that pauses above 100 bytes and goes on below 11."""
    two = Two()
    bounded(two.network, sizes, 7)
    two.client = Writer()
    with instead(two.loop, random.Random(1)):
        two.run(50)
        two.client.transport.set_write_buffer_limits(high=100, low=10)
        yield two
        two.loop.close()


@pytest.fixture(params=[False, True], ids=["at-once", "deferred"])
def sizes(request: pytest.FixtureRequest) -> SendBuffers:
    return SIZES._replace(deferred=request.param)


def test_writer_pauses_above_limit_and_resumes(
    sizes: SendBuffers,
) -> None:
    with connected(sizes) as two:
        two.write(DATA)
        assert two.client.paused == [True]
        assert two.client.transport.get_write_buffer_size() >= len(DATA) - sizes.kernel_bytes
        two.run(200)
        assert two.client.paused == [True, False]
        assert two.client.transport.get_write_buffer_size() == 0
        assert two.server.received == DATA


def test_unreading_peer_leaves_the_buffer_full(sizes: SendBuffers) -> None:
    with connected(sizes) as two:
        two.there.call(two.server.transport.pause_reading)
        two.write(DATA)
        two.run(5_000)
        assert two.client.paused == [True]
        assert two.client.transport.get_write_buffer_size() == len(DATA) - sizes.kernel_bytes
        two.there.call(two.server.transport.resume_reading)
        two.run(200)
        assert two.client.paused == [True, False]
        assert two.server.received == DATA


def test_close_sends_the_buffer_unlike_abort(sizes: SendBuffers) -> None:
    for how, received in (("close", DATA), ("abort", None)):
        with connected(sizes) as two:
            two.write(DATA)
            two.here.call(getattr(two.client.transport, how))
            assert two.client.transport.is_closing()
            two.run(500)
            assert two.client.lost == [None]
            assert two.server.lost == [None] if received else len(two.server.lost) == 1
            assert received is None or two.server.received == received


def test_connection_to_dead_peer_is_reset(sizes: SendBuffers) -> None:
    with connected(sizes) as two:
        two.there.call(two.server.transport.pause_reading)
        two.write(DATA)
        two.run(100)
        two.there.call(two.server.transport.close)
        two.run(500)
        assert [type(error) for error in two.client.lost] == [ConnectionResetError]


def test_lowered_limit_pauses_at_once() -> None:
    with connected() as two:
        two.write(DATA[:150])
        assert two.client.paused == []
        two.here.call(lambda: two.client.transport.set_write_buffer_limits(high=0, low=0))
        assert two.client.paused == [True]
        two.run(200)
        assert two.client.paused == [True, False]


def test_limits_are_small_only_meanwhile() -> None:
    before = tls_connection.BYTES_A_TURN, tls_transport.BYTES_A_TURN
    with smaller_limits(SIZES):
        assert tls_connection.BYTES_A_TURN == tls_transport.BYTES_A_TURN == 400
    assert before == (tls_connection.BYTES_A_TURN, tls_transport.BYTES_A_TURN)


@pytest.mark.parametrize("seed", [2, 7, 12])
def test_run_with_full_buffers_is_reproducible(seed: int) -> None:
    first, again = (run(seed, 1_000, profile="full buffers") for _ in range(2))
    assert first.outcome == "held", first.sentence
    assert first.events == again.events
    assert first.digest == again.digest


@pytest.mark.parametrize("seed", [3, 1760410, 1760448])
def test_run_with_deletions_from_compacted_topics_holds(seed: int) -> None:
    """1760410: a new copy of a cleaned log begins in a hole, and knows its term from behind it;
    1760448: one replica's retention went further than the others'."""
    result = run(seed, 2_500, profile="cleaning and deleting")
    assert result.outcome == "held", result.sentence
