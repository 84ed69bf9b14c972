"""The epoch cache against a log of batches, cut and trimmed at will."""

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_core.replica.leader_epochs import EpochCache

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("cut"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("trim"), st.integers(0, 40), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_cache_equals_the_one_recomputed_from_the_log(steps: list[tuple[str, int, int]]) -> None:
    cache = EpochCache()
    terms: dict[int, int] = {}  # offset -> term of the record there
    start = end = newest = 0
    for kind, value, count in steps:
        if kind == "append":
            newest += value
            cache.assign(newest, end)
            terms |= dict.fromkeys(range(end, end + count), newest)
            end += count
        elif kind == "cut" and value >= start:
            end = min(end, value)
            cache.truncate_from_end(end)
            terms = {offset: term for offset, term in terms.items() if offset < end}
        elif kind == "trim" and value <= end:
            start = max(start, value)
            cache.truncate_from_start(start, end)
            # The last record's term stays known when nothing is left.
            first = start - 1 if start == end else start
            terms = {offset: term for offset, term in terms.items() if offset >= first}
        expected: list[tuple[int, int]] = []
        for offset in sorted(terms):
            if not expected or expected[-1][0] != terms[offset]:
                expected.append((terms[offset], offset))
        assert cache.entries == expected
        for offset in terms:
            assert cache.epoch_at(offset) == terms[offset]
        assert cache.epoch_of_last(end) == terms.get(end - 1)


def test_end_offset_is_start_of_next_known_epoch() -> None:
    cache = EpochCache([(2, 0), (3, 10), (6, 20)])
    assert cache.end_offset_for(6, 25) == (6, 25)
    assert cache.end_offset_for(3, 25) == (3, 20)
    assert cache.end_offset_for(5, 25) == (3, 20), "the greatest term that is not above"
    assert cache.end_offset_for(1, 25) == (1, 0), "older than everything known"
    assert cache.end_offset_for(7, 25) is None, "newer than everything known"
    assert EpochCache().end_offset_for(0, 0) is None


def test_term_without_records_gives_way_to_the_next() -> None:
    cache = EpochCache([(1, 0), (2, 5)])
    cache.assign(3, 5)
    assert cache.entries == [(1, 0), (3, 5)]


def test_epoch_cache_version_changes_with_its_content_alone() -> None:
    cache = EpochCache([(1, 0)])
    version = cache.version
    cache.assign(1, 3)
    cache.truncate_from_end(5)
    cache.truncate_from_start(0, 5)
    assert cache.version == version
    cache.assign(2, 3)
    cache.truncate_from_start(1, 5)
    cache.truncate_from_end(3)
    assert cache.version == version + 3
