"""Renders the windows of a continuous Verification. Called by `verbs_verify`. Pure."""

from __future__ import annotations

from typing import Any

from plimsoll_core.phrasing import ids_text
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kubectl_plugin.shown import line, table, warned

TITLES = ("passed", "violated", "inconclusive", "records/s", "to judge", "to read", "restarts")
WINDOW_TITLES = ("window until", "verdict", "reason", "acked", "records/s", "p99 ms")


def continuous_parts(status: Object) -> list[Any]:
    """Return the state of a continuous run: its windows by verdict, its rate, the acknowledgements
    that are not judged and the records that are not read yet, and how often its driver was
    replaced; then the newest windows, the last lost record and the drill's faults. Return nothing
    for another run."""
    state = status.get("continuous")
    if not state:
        return []
    recent, violation = state.get("recent") or [], state.get("lastViolation")
    drivers = state.get("drivers") or 0
    row = [
        state.get("passed"),
        warned(state.get("violated"), state.get("violated")),
        state.get("inconclusive"),
        recent[0].get("recordsPerSecond") if recent else None,
        state.get("waiting"),
        state.get("behind"),
        max(0, drivers - 1),
    ]
    parts: list[Any] = [
        line(f"Windows of {state.get('windowSeconds')} s since {state.get('since')}."),
        table(TITLES, [row]),
    ]
    if recent:
        parts.append(table(WINDOW_TITLES, [_window(one) for one in recent]))
    if violation:
        until = state.get("acknowledged")
        known = f" (acknowledged until {until})" if until else ""
        told = (
            "The last violation of the Verification, in the window that ended at "
            f"{violation.get('end')}{known}: "
        )
        parts.append(line(f"{told}{violation.get('message')}.", bad=not until))
    if loss := state.get("lastLoss"):
        place = f"{loss.get('topic')}-{loss.get('partition')} at offset {loss.get('offset')}"
        where = f", read from broker {ids_text(loss['brokers'])}" if loss.get("brokers") else ""
        found = f"found at {state.get('lastLossTime')}"
        parts.append(
            line(f"The last lost record ({loss.get('kind')}): {place}{where}, {found}.", bad=True)
        )
    if drill := status.get("drill"):
        cells = [[one.get("time"), one.get("fault"), one.get("result")] for one in drill]
        parts.append(table(("drill", "fault", "result"), cells))
    return parts


def _window(one: Object) -> list[Any]:
    verdict = one.get("verdict")
    return [
        one.get("end"),
        warned(verdict, verdict != "Passed"),
        one.get("reason"),
        one.get("acked"),
        one.get("recordsPerSecond"),
        one.get("p99Milliseconds"),
    ]
