"""Re-enabling of a disabled User: only by a fresh read of its object.

A watch may be behind, a new leader's most of all, and show the object as it was before it was
disabled. Since the object's state is committed, the object is read first.
"""

from __future__ import annotations

from plimsoll_operator.api.user import User
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.resources import USERS
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry


async def wait_for_newest(term: Term, user: User | None) -> None:
    """Raise Retry while the object as last seen would enable a disabled user and is not the
    newest."""
    if user is None or user.spec.disabled:
        return
    row = term.image.security.users.get(user.user_name)
    if row is None or not row.disabled:
        return
    try:
        newest = (await term.kube.get(USERS, *user.key))["metadata"]
    except ApiError as error:
        raise Retry(f"cannot re-read a disabled User: {error}") from error
    seen = user.metadata
    if (newest.get("uid"), newest.get("generation", 0)) != (seen.uid, seen.generation):
        raise Retry("a disabled User changed since it was last seen")
