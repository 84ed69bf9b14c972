"""The files of a cleaned segment on its way into its log, and what a start makes of them.

Called by the log's driver, which takes the steps in this order, and by recovery, which finds them
half taken.  The name `<base>.log.swap` is the decision: without it a cleaned segment never was,
with it the cleaned one holds, whatever else is there.

    1. write   <base>.log.cleaned, .index.cleaned, .timeindex.cleaned (of a log with transactions
               also .txnindex.cleaned); sync them; sync the directory
    2. commit  <base>.log.cleaned -> <base>.log.swap; sync the directory
    3. in memory the cleaned segment stands for those that it replaces
    4. clear   <base>.index.cleaned -> <base>.index, .timeindex alike; remove the files of the other
               segments that it replaces; sync the directory
    5. finish  <base>.log.swap -> <base>.log; sync the directory

It replaces the segments that begin in its own range of offsets: a cleaned segment ends where the
last of them ended (`retain.EmptyBatch`).  Source: docs/protocol.md §10.3; Kafka's file names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

CLEANED = ".cleaned"
SWAP = ".swap"
LOG = ".log"
INDEXES = (".index", ".timeindex")
TRANSACTIONS = ".txnindex"
"""The index of aborted transactions, of a log that has transactions. Unlike the others a start does
not make it anew whenever it is missing, so the new one is never taken for the old log's."""
_DIGITS = 20


def committed(names: Collection[str]) -> list[int]:
    """Return the base offsets of the cleaned segments with a swap that recovery has to finish:
    those with a `.log.swap` file. `names`: the names of the files in a log's directory."""
    stems = (name.removesuffix(LOG + SWAP) for name in names if name.endswith(LOG + SWAP))
    found = (int(stem) for stem in stems if stem.isdecimal() and len(stem) == _DIGITS)
    return sorted(base for base in found if base < 2**63)


class Rest(NamedTuple):
    """The remaining steps of a committed swap: do `renames`, then `removals`, in order, sync the
    directory, rename `last`, and sync again."""

    renames: list[tuple[str, str]]
    removals: list[str]
    last: tuple[str, str]


def rest(base_offset: int, end_offset: int, names: Collection[str]) -> Rest:
    """Return the remaining steps of the interrupted swap of the cleaned segment with the offsets
    [base_offset, end_offset). `names`: the names of all files in the log's directory."""
    stem = f"{base_offset:0{_DIGITS}d}"
    renames = [
        (stem + suffix + CLEANED, stem + suffix)
        for suffix in (*INDEXES, TRANSACTIONS)
        if stem + suffix + CLEANED in names
    ]
    # An index that has no new one would be the old log's.
    removals = [
        stem + suffix
        for suffix in INDEXES
        if stem + suffix in names and stem + suffix + CLEANED not in names
    ]
    for name in sorted(names):
        other, _, kind = name.partition(".")
        known = f".{kind}" in (LOG, *INDEXES, TRANSACTIONS)
        if not (other.isdecimal() and len(other) == _DIGITS and known):
            continue
        if base_offset < int(other) < end_offset:
            removals.append(name)
    return Rest(renames, removals, (stem + LOG + SWAP, stem + LOG))
