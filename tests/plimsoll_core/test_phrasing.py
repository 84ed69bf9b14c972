"""Lists in sentences."""

import pytest

from plimsoll_core.phrasing import brokers_text, counted, first_few, replicas_text, sentence_start


@pytest.mark.parametrize(
    ("broker_ids", "text"),
    [((4,), "broker 4"), ((2, 1), "brokers 1 and 2"), ({3, 1, 2}, "brokers 1, 2 and 3")],
)
def test_brokers_text_sorts_and_joins_with_and(broker_ids: tuple[int], text: str) -> None:
    assert brokers_text(broker_ids) == text


def test_brokers_text_beyond_its_limit_counts_the_rest() -> None:
    assert brokers_text(range(5), 3) == "brokers 0, 1, 2 and 2 more"
    assert brokers_text([7], 3) == "broker 7"
    assert first_few(["a", "b"]) == "a, b"


def test_replicas_text_keeps_the_list_order() -> None:
    assert replicas_text((2, 0, 1)) == "2, 0, 1"


def test_sentence_start_and_counted_change_one_letter_each() -> None:
    assert sentence_start(brokers_text([1, 2])) == "Brokers 1 and 2"
    assert (counted(1, "replica"), counted(2, "replica")) == ("1 replica", "2 replicas")
