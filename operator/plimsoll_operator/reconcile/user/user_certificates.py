"""A user's certificate: the one in its Secret, and those committed beside it. Pure but for the
random bytes of a new key.

A certificate that is due is replaced, and the former stays valid until its end. If the Secret holds
no certificate of this very user, the new one stands alone: a deleted Secret means that its key is
no longer trusted. So the Secret alone determines what is committed, and the next leader commits the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from plimsoll_core.security.client_certificates import (
    CERTIFICATES_MAX,
    UserCertificate,
    user_identity,
)
from plimsoll_operator.api.user import User
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.manifests.listener_secrets import data_of
from plimsoll_operator.pki.authority import (
    CLIENT_DAYS,
    KeyPair,
    Unreadable,
    describe,
    issue_client,
    signed_by,
    why_unusable,
)

CERTIFICATE_KEY, PRIVATE_KEY = "tls.crt", "tls.key"
FORMER_KEY = "former-certificates"
"""Key of the fingerprints of former certificates, which are valid until their ends."""


class UserPair(NamedTuple):
    """Content of the Secret, and the certificates to commit, newest first."""

    pair: KeyPair
    former: tuple[str, ...]
    committed: tuple[UserCertificate, ...]


def settled(
    user: User,
    cluster_id: UUID,
    authority: KeyPair,
    found: Object | None,
    known: Sequence[UserCertificate],
    now_ms: int,
) -> UserPair:
    """Return the pair to store and the certificates to commit. `found`: the user's Secret; `known`:
    committed certificates. Raises Unreadable."""
    identity = user_identity(cluster_id, user.user_name, user.metadata.uid)
    data = {} if found is None else data_of(found)
    held = _held(data, identity)
    former = [] if held is None else data.get(FORMER_KEY, b"").decode("ascii", "replace").split()
    pair = held
    if held is None or _is_due(held, authority, now_ms):
        if held is not None:
            former.insert(0, describe(held.certificate).sha256)
        stated = user.certificate.validity_days if user.certificate is not None else None
        days = stated or CLIENT_DAYS
        pair = issue_client(authority, user.user_name, identity, now_ms, days)
    assert pair is not None, "it is held, or was just made"
    shown = describe(pair.certificate)
    newest = UserCertificate(sha256=shown.sha256, not_after_ms=shown.validity.not_after_ms)
    good = {one.sha256: one for one in known if one.not_after_ms > now_ms}
    kept = [good[one] for one in dict.fromkeys(former) if one in good and one != newest.sha256]
    kept = kept[: CERTIFICATES_MAX - 1]
    return UserPair(pair, tuple(one.sha256 for one in kept), (newest, *kept))


def _held(data: dict[str, bytes], identity: str) -> KeyPair | None:
    """Return the key pair of a Secret, or None if it holds none of this very user."""
    certificate, key = data.get(CERTIFICATE_KEY), data.get(PRIVATE_KEY)
    if certificate is None or key is None:
        return None
    pair = KeyPair(certificate=certificate, key=key)
    try:
        names = describe(certificate).names
    except Unreadable:
        return None
    return pair if not why_unusable(pair) and names == {identity} else None


def _is_due(pair: KeyPair, authority: KeyPair, now_ms: int) -> bool:
    """Return True if the certificate must be replaced, also after a change of the authority."""
    signed = signed_by(pair.certificate, authority.certificate)
    return not signed or describe(pair.certificate).validity.due_ms() <= now_ms
