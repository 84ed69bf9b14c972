"""Checks that the caller holds every right of the operator.

An installer needs them all: Kubernetes lets users grant by a role only rights that they hold. Pure.
"""

from __future__ import annotations

from plimsoll_operator.preflight.facts import NotRead, PermissionAnswer, Verdict
from plimsoll_operator.preflight.unread_facts import unread

RIGHTS = "rights"
NAMED_MAX = 8
"""Bound on the missing rights that the sentence names."""


def rights(found: tuple[PermissionAnswer, ...] | NotRead) -> Verdict:
    if isinstance(found, NotRead):
        return unread(RIGHTS, found)
    missing = [_text(one) for one in found if not one.allowed]
    if not missing:
        text = f"You hold all {len(found)} rights of the operator's roles."
        return Verdict(check=RIGHTS, result="ok", message=text)
    more = len(missing) - NAMED_MAX
    named = ", ".join(missing[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    text = (
        f"{len(missing)} of {len(found)} rights are missing: {named}. Install the chart as a "
        "user who holds them (Kubernetes does not let a user grant rights that they lack), or, "
        "if rbac.create is false, add them to the roles of the operator's ServiceAccount."
    )
    return Verdict(check=RIGHTS, result="failed", message=text)


def _text(answer: PermissionAnswer) -> str:
    where = f" in namespace {answer.namespace}" if answer.namespace else ""
    return f"{answer.permission}{where}"
