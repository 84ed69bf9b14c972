"""Reads values out of a driver's report, whatever it contains. Pure.

Called by `driver_report` and `rolling_report`. What cannot be read is left out.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.api.verification import Counts, Timing

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,252}[A-Za-z0-9_])?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_STORED = range(-(2**63), 2**63)

M = TypeVar("M", bound=msgspec.Struct)


def reason_or(stated: object, verdict: str) -> str:
    """Return the stated reason if it has Kubernetes' format, else the verdict."""
    return stated if isinstance(stated, str) and _REASON.fullmatch(stated) else verdict


def reported_counts(stated: object) -> Counts:
    """Return the counts of a report."""
    return converted(stated, Counts)


def reported_timing(stated: object) -> Timing:
    """Return the times of a report; those that are no timestamps are left out."""
    timing = converted(stated, Timing)
    return msgspec.structs.replace(
        timing,
        start_time=known_time(timing.start_time),
        completion_time=known_time(timing.completion_time),
    )


def known_time(stated: object) -> str | None:
    """Return the stated time if it is a valid timestamp, else None."""
    try:
        known = isinstance(stated, str) and _TIME.fullmatch(stated) and milliseconds(stated) >= 0
    except ValueError:
        return None
    return stated if known and isinstance(stated, str) else None


def converted(content: object, model: type[M]) -> M:
    """Return the content as a `model`. Unknown fields are left out, since the driver's image may be
    newer or older. Return an empty model if a field cannot be read or a number is too large."""
    try:
        found = msgspec.convert(content or {}, model, strict=False)
    except msgspec.ValidationError:
        return model()
    numbers = (one for one in msgspec.structs.astuple(found) if isinstance(one, int))
    return found if all(one in _STORED for one in numbers) else model()
