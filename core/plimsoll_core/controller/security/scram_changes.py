"""Changes the passwords of users that no object declares.

Called for AlterScramCredentials. Each user is changed by itself: one that is named twice for a
mechanism is refused, and the others are changed. The broker computed the stored values and alone
saw the salted password. Source: KIP-554; ScramControlManager."""

from __future__ import annotations

from collections import Counter

from plimsoll_core.cluster.records import ScramCredentialRemoved, ScramCredentialSet
from plimsoll_core.controller.kernel.decision import DecisionContext, access_too_old
from plimsoll_core.controller.security.security_share import CREDENTIALS, share_of_client
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer
from plimsoll_core.messages.security import (
    AlterScramCredentials,
    ScramAltered,
    ScramChanged,
    ScramDeletion,
)
from plimsoll_core.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    ScramCredential,
    illegal_user_name,
    key_bytes,
)

_Change = ScramDeletion | ScramCredential


def alter_scram(turn: DecisionContext, request: AlterScramCredentials) -> Answer | Refusal:
    if refusal := access_too_old(turn):
        return refusal
    changes: tuple[_Change, ...] = (*request.deletions, *request.upsertions)
    times = Counter((one.user, one.mechanism) for one in changes)
    by_user: dict[str, list[_Change]] = {}
    for one in changes:
        by_user.setdefault(one.user, []).append(one)
    told = []
    share = share_of_client(turn, CREDENTIALS, request.behalf)
    for user, wanted in by_user.items():
        refusals = (_refused(turn, one, times[one.user, one.mechanism]) for one in wanted)
        refusal = next((one for one in refusals if one is not None), None)
        more = _more(turn, wanted)
        refusal = refusal or share.refusal(more)
        if refusal is None:
            for one in wanted:
                _change(turn, one)
            share.changed(more)
            told.append(ScramChanged(user=user))
        else:
            code, message = refusal.reason.code, refusal.message
            told.append(ScramChanged(user=user, code=code, message=message))
    return ScramAltered(users=tuple(told), end_offset=turn.image.next_offset)


def _refused(turn: DecisionContext, one: _Change, times: int) -> Refusal | None:
    if times > 1:
        return _no(
            Reason.DuplicateCredential,
            f"The request names a SCRAM credential of user {one.user[:100]} twice; name it once.",
        )
    holder = turn.image.security.object_with_password_of(one.user)
    if holder is not None:
        text = (
            f"User {one.user[:100]} is declared by the object {holder}, so a client cannot change "
            "the password; change it in the Secret of that object."
        )
        return _no(Reason.PolicyViolation, text)
    known = (one.user, one.mechanism) in turn.image.security.credentials
    if isinstance(one, ScramDeletion):
        text = f"The user {one.user[:100]} has no credential for {one.mechanism} to delete."
        return None if known else _no(Reason.UnknownCredential, text)
    return unacceptable(one)


def _more(turn: DecisionContext, wanted: list[_Change]) -> int:
    """Return by how many credentials these changes of one user raise their number."""
    known = turn.image.security.credentials
    deleted = sum(isinstance(one, ScramDeletion) for one in wanted)
    new = sum((one.user, one.mechanism) not in known for one in wanted)
    return new - deleted


def unacceptable(one: ScramCredential) -> Refusal | None:
    """Return a refusal if the credential's user name, iterations, or length of salt or keys is
    invalid, or None."""
    if illegal_user_name(one.user):
        text = (
            f"The user name {one.user[:130]!r} is not allowed. A user name has 1 to 128 letters,"
            " digits and . _ : @ - and neither begins with system: nor is ANONYMOUS."
        )
        return _no(Reason.UnacceptableCredential, text)
    if not ITERATIONS_MIN <= one.iterations <= ITERATIONS_MAX:
        text = (
            f"The iterations of a SCRAM credential must be from {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX}, not {one.iterations}."
        )
        return _no(Reason.UnacceptableCredential, text)
    length = key_bytes(one.mechanism)
    lengths = {len(one.stored_key), len(one.server_key)}
    if not 0 < len(one.salt) <= SALT_BYTES_MAX or lengths != {length}:
        text = (
            f"The salt of a SCRAM credential must have 1 to {SALT_BYTES_MAX} bytes, and each of "
            f"its keys for {one.mechanism} must have {length} bytes."
        )
        return _no(Reason.UnacceptableCredential, text)
    return None


def _change(turn: DecisionContext, one: _Change) -> None:
    cause = "changed by a client"
    if isinstance(one, ScramDeletion):
        turn.add(ScramCredentialRemoved(cause=cause, user=one.user, mechanism=one.mechanism))
    else:
        turn.add(ScramCredentialSet(cause=cause, credential=one))


def _no(reason: Reason, message: str) -> Refusal:
    return Refusal(reason=reason, message=message)
