"""Formats pieces of sentences: lists of brokers, replica lists, counts with their nouns.

Used for refusals, conditions, Events and causes in the metadata log. No other module of core,
operator or broker formats a list of brokers (`tests/test_tidy.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NAMED_AT_MOST = 3
"""The most topics, partitions or brokers that a plan's sentence names."""


def brokers_text(broker_ids: Iterable[int], at_most: int | None = None) -> str:
    """Return `broker 1`, `brokers 1 and 2` or `brokers 1, 2 and 3`. Beyond `at_most` ids, end with
    `… and 4 more`."""
    ids = sorted(broker_ids)
    noun = "broker" if len(ids) == 1 else "brokers"
    if at_most is not None:
        return f"{noun} {first_few([str(one) for one in ids], at_most)}"
    return f"{noun} {ids_text(ids)}"


DOWN = "is down"


def down_text(broker_id: int) -> str:
    """Return `Broker 1 is down`, the beginning of a sentence that the caller completes with the
    reason."""
    return f"Broker {broker_id} {DOWN}"


def ids_text(broker_ids: Iterable[int]) -> str:
    """Return `1`, `1 and 2` or `1, 2 and 3`, for sentences that already have the noun."""
    *others, last = [str(one) for one in sorted(broker_ids)] or ["none"]
    return f"{', '.join(others)} and {last}" if others else last


def replicas_text(row: Iterable[int]) -> str:
    """Return `2, 0, 1`: a replica list, in its order."""
    return ", ".join(str(broker_id) for broker_id in row)


def is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def sentence_start(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def bytes_text(count: int) -> str:
    """Return a number of bytes in the largest unit of which it has at least ten, rounded down: `512
    bytes`, `9000 bytes`, `300 KiB`, `1200 MiB`, `12 GiB`."""
    for power, letter in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(count) >= 10 << power:
            return f"{count >> power} {letter}"
    return f"{count} bytes"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 replica`, `2 replicas`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def first_few(names: Sequence[str], at_most: int = NAMED_AT_MOST) -> str:
    """Return the first `at_most` names and the number of others, as in `a, b, c and 4 more`; all
    names if there are no others."""
    more = len(names) - at_most
    few = ", ".join(names[:at_most])
    return f"{few} and {more} more" if more > 0 else few
