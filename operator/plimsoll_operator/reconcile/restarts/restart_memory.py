"""The restart reconciler's memory for one term."""

from __future__ import annotations

from dataclasses import dataclass, field

from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.restarts.pod_state import Compared
from plimsoll_operator.reconcile.restarts.roll_progress import Rolling


@dataclass(slots=True)
class Restarts:
    """`rolling`: the roll in progress. `compared`: StatefulSets, by uid, as last found correct."""

    rolling: Rolling | None = None
    compared: dict[str, Compared] = field(default_factory=dict)


def restarts_of(term: Term) -> Restarts:
    return term.kept(Restarts, Restarts)
