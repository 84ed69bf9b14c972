"""Every reason of an Event is documented, and every documented one is in the code."""

import ast
from pathlib import Path
from typing import get_args

from plimsoll_core.cluster.model import MovePhase, RebalancePhase
from plimsoll_core.errors import Reason
from plimsoll_operator.api.cluster_status import Action
from plimsoll_operator.api.verification import Verdict
from plimsoll_operator.status.event_reasons import REASONS, render

ROOT = Path(__file__).parent.parent.parent
NAMES = [row.reason for row in REASONS]
TOLD_PHASES = set(get_args(RebalancePhase)) - {"Beginning"}
COMPUTED = {
    *(f"Reassignment{phase}" for phase in (*get_args(MovePhase), "Paused")),
    *(
        f"Rebalance{phase}"
        for phase in (*get_args(RebalancePhase), "Paused")
        if phase != "Beginning"
    ),
    *(f"{action}Blocked" for action in get_args(Action)),
    *(f"Verification{verdict}" for verdict in get_args(Verdict) if verdict),
    Reason.MassDeletion.name,
    Reason.MetadataRegressed.name,
    Reason.MetadataTooNew.name,
}


COMPUTING = {
    "leadership/led_cluster.py",
    "reconcile/effects.py",
    "reconcile/topic/deletion_proof.py",
    "reconcile/user/user_deletion.py",
    "reconcile/verification/reconcile.py",
    "status/record_events.py",
}
"""Where a reason is put together; what of, `COMPUTED` says."""
CODE = ROOT / "operator/plimsoll_operator"


def stated() -> set[str]:
    """The reasons that stand in the code as they are."""
    found, computing = set(), set()
    for path in CODE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Occurrence":
                for word in node.keywords:
                    if word.arg == "reason" and isinstance(word.value, ast.Constant):
                        found.add(word.value.value)
                    elif word.arg == "reason":
                        computing.add(str(path.relative_to(CODE)))
    assert computing == COMPUTING
    return found


def test_event_reasons_match_the_code_uniquely():
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) == stated() | COMPUTED


def test_event_document_is_generated_from_code():
    made = render()
    where = "python -m plimsoll_operator.status.event_reasons docs/events.md"
    assert (ROOT / "docs/events.md").read_text() == made, f"run: {where}"
