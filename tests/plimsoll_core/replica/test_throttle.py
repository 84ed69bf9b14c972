"""The token bucket: over any time no more than its rate allows, and no less while there is work."""

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_core.replica.throttle import PIECE_BYTES_MAX, PIECE_BYTES_MIN, Bucket

MIB = 2**20
RATES = st.sampled_from([1, 7, 900, 10_000, MIB, 50 * MIB, 3_000 * MIB])


def due_s(bucket: Bucket, now_ms: int = 0) -> float:
    due_ms = bucket.due_in_ms(now_ms)
    assert due_ms is not None
    return due_ms / 1_000


def test_new_bucket_waits_for_its_first_piece():
    bucket = Bucket(200 * MIB, now_ms=5)
    assert bucket.due_in_ms(5) == 5
    assert bucket.due_in_ms(9) == 1
    assert bucket.due_in_ms(10) == 0
    assert bucket.take(10) == MIB
    assert bucket.due_in_ms(10) == 5


def test_idle_time_is_saved_for_quarter_second():
    bucket = Bucket(64 * MIB, now_ms=0)
    taken = 0
    while bucket.due_in_ms(3_600_000) == 0:
        taken += bucket.take(3_600_000)
    assert 0 <= 16 * MIB - taken < bucket.piece


def test_bucket_refunds_unused_bytes_and_charges_excess_bytes():
    bucket = Bucket(200 * MIB, now_ms=0)
    piece = bucket.take(5)
    bucket.settle(piece, 0, 5)
    assert bucket.due_in_ms(5) == 0, "nothing came: the same piece may be taken again"
    piece = bucket.take(5)
    bucket.settle(piece, piece + 200 * MIB, 5)
    assert due_s(bucket, 5) == 1.005, "a second's worth is owed, and then a piece is saved up"


def test_late_take_gets_at_most_one_mebibyte():
    bucket = Bucket(20 * MIB, now_ms=0)
    assert bucket.piece == 20 * MIB // 200
    assert bucket.take(15) == 20 * MIB * 15 // 1_000
    assert bucket.take(1_000) == PIECE_BYTES_MAX


def test_giving_back_never_overfills():
    bucket = Bucket(64 * MIB, now_ms=0)
    piece = bucket.take(10_000)
    bucket.settle(piece, 0, 20_000)
    taken = 0
    while bucket.due_in_ms(20_000) == 0:
        taken += bucket.take(20_000)
    assert 0 <= 16 * MIB - taken < bucket.piece


def test_new_rate_applies_at_once_and_debt_stays():
    bucket = Bucket(1, now_ms=0)
    piece = bucket.take(1_000)
    bucket.settle(piece, 1_000_001, 1_000)
    assert due_s(bucket, 1_000) > 1e6 - 10
    bucket.limit(1_000_000, 1_000)
    assert 1 < due_s(bucket, 1_000) < 1.1
    bucket.limit(0, 1_500)
    assert bucket.due_in_ms(10_000_000) is None, "paused: not before the limit changes"
    bucket.limit(1_000_000, 10_000_000)
    assert due_s(bucket, 10_000_000) < 0.6, "half of it was paid before the pause"


def test_slower_rate_keeps_only_its_own_burst():
    bucket = Bucket(64 * MIB, now_ms=0)
    bucket.limit(MIB, 10_000)
    taken = 0
    while bucket.due_in_ms(10_000) == 0:
        taken += bucket.take(10_000)
    assert 0 <= MIB // 4 - taken < bucket.piece


def test_pieces_are_small_enough_to_interleave():
    for rate in (1, 1_000, MIB, 10 * MIB, 50 * MIB, 10_000 * MIB):
        piece = Bucket(rate, 0).piece
        assert 1 <= piece <= PIECE_BYTES_MAX
        assert piece <= max(rate // 8, 1), "half a bucket at most"
        if rate >= 8 * PIECE_BYTES_MIN:
            assert piece >= PIECE_BYTES_MIN, "nor so small that asking costs more than copying"


class Copying:
    """Connections that take pieces and get batches of some size later."""

    def __init__(self, rate: int) -> None:
        self.bucket = Bucket(rate, 0)
        self.rates: list[int] = []  # one each millisecond
        self.arrived: list[int] = []
        self.asked: dict[int, int] = {}

    def millisecond(self, connection: int, size: int | None) -> None:
        now_ms = len(self.rates)
        arrived = 0
        if connection in self.asked:
            if size is not None:
                taken = self.asked.pop(connection)
                arrived = min(size, taken) if size % 2 else size
                self.bucket.settle(taken, arrived, now_ms)
        elif self.bucket.due_in_ms(now_ms) == 0:
            self.asked[connection] = self.bucket.take(now_ms)
        self.rates.append(self.bucket.rate)
        self.arrived.append(arrived)


@settings(max_examples=200)
@given(
    rates=st.lists(RATES, min_size=1, max_size=4),
    turns=st.lists(
        st.tuples(st.integers(0, 2), st.none() | st.integers(0, 200_000)), min_size=1, max_size=300
    ),
    repeat=st.integers(1, 6),
)
def test_arrivals_never_exceed_rate_and_in_flight(
    rates: list[int], turns: list[tuple[int, int | None]], repeat: int
):
    copying = Copying(rates[0])
    length = max(len(turns) * repeat // len(rates), 1)
    for number, (connection, size) in enumerate(turns * repeat):
        rate = rates[min(number // length, len(rates) - 1)]
        if rate != copying.bucket.rate:
            copying.bucket.limit(rate, number)
        copying.millisecond(connection, size)
    # What may be more than the rate: a burst, and for each connection a piece and a batch.
    burst = max(max(rate // 4, 1) for rate in rates)
    slack = burst + 3 * (min(burst, PIECE_BYTES_MAX) + 200_000)
    # The largest sum of (arrived - allowed) over any window, by Kadane's way.
    excess = (a - r / 1_000 for a, r in zip(copying.arrived, copying.rates, strict=True))
    worst = max(accumulate(excess, lambda best, one: max(best, 0) + one))
    assert worst <= slack + 1


@settings(max_examples=50)
@given(rate=RATES, batch=st.integers(1, 2 * MIB), seconds=st.integers(1, 10))
def test_throttle_uses_its_whole_rate(rate: int, batch: int, seconds: int):
    bucket = Bucket(rate, 0)
    now_ms, copied = 0, 0
    while (wait_ms := bucket.due_in_ms(now_ms)) is not None and now_ms + wait_ms <= seconds * 1_000:
        now_ms += wait_ms
        piece = bucket.take(now_ms)
        used = -(-piece // batch) * batch
        bucket.settle(piece, used, now_ms)
        copied += used
    assert 0.99 * rate * seconds - rate / 1_000 - bucket.piece <= copied
    assert copied <= rate * seconds + batch
