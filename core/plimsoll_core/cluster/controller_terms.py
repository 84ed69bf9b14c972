"""The controller terms of a metadata log. They show whether a broker's shorter log is a prefix of
it.

A term's records form one chain, as each append is a compare-and-set on the log that the term has
read. Two logs of one cluster therefore agree up to an offset if the record before it belongs to the
same term in both. A controller epoch proves nothing: after etcd was restored, the next term takes a
number that an earlier one may have had. Source: docs/protocol.md 3.14.
"""

from __future__ import annotations

from enum import Enum

from plimsoll_core.cluster.model import ControllerTerm
from plimsoll_core.ids import MetadataOffset

TERMS_MAX = 1_000
"""The most terms that an image keeps. A broker's log that ends in an older term is refused, since
it cannot be distinguished from a log with another history."""


class Ancestry(Enum):
    """The result of comparing a broker's metadata log with the controller's. WITHIN: the broker's
    log is a prefix of the controller's. DIFFERENT: the logs differ. FORGOTTEN: the broker's log
    ends before the first term that the image keeps, and older terms are forgotten, so that the
    comparison is impossible."""

    WITHIN = "within"
    DIFFERENT = "different"
    FORGOTTEN = "of a controller term that is no longer known"


def with_term(
    terms: tuple[ControllerTerm, ...], term_id: str, first_offset: MetadataOffset
) -> tuple[ControllerTerm, ...]:
    """Return the terms with a new one at the end, at most the newest `TERMS_MAX`. Return them
    unchanged if `term_id` is empty: before metadata version 5 terms have no id."""
    if not term_id:
        return terms
    return (*terms, ControllerTerm(id=term_id, first_offset=first_offset))[-TERMS_MAX:]


def ancestry(
    terms: tuple[ControllerTerm, ...], offset: MetadataOffset, term_id: str | None
) -> Ancestry:
    """Compare a broker's metadata log of `offset` records with a longer log, which has `terms`:
    return WITHIN if the broker's log is a prefix of it.

    `term_id` is the id of the last term in the broker's records, and empty if none of them has an
    id. It is None if the broker's release does not send it. If it is None or `terms` is empty,
    nothing can be compared, and the answer is WITHIN.
    """
    if term_id is None or not terms:
        return Ancestry.WITHIN
    before_all = offset <= terms[0].first_offset
    if before_all and len(terms) == TERMS_MAX:
        return Ancestry.FORGOTTEN
    if not term_id:
        return Ancestry.WITHIN if before_all else Ancestry.DIFFERENT
    for number, term in enumerate(terms):
        if term.id == term_id:
            ends = number + 1 == len(terms) or offset <= terms[number + 1].first_offset
            return Ancestry.WITHIN if term.first_offset < offset and ends else Ancestry.DIFFERENT
    return Ancestry.DIFFERENT
