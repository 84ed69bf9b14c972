"""Pieces of the planner's sentences: counts with their nouns, and lists that name the first few."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_core.ids import BrokerId

NAMED_AT_MOST = 3
"""How many topics, partitions or brokers a sentence names."""


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def named(names: Sequence[str]) -> str:
    more = len(names) - NAMED_AT_MOST
    few = ", ".join(names[:NAMED_AT_MOST])
    return f"{few} and {more} more" if more > 0 else few


def listed(brokers: Sequence[BrokerId]) -> str:
    """`broker 1`, or `brokers 1, 2`."""
    noun = "broker" if len(brokers) == 1 else "brokers"
    return f"{noun} {named([str(broker) for broker in brokers])}"
