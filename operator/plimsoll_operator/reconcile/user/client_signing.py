"""The authority that signs users' certificates, as this term knows it.

`reconcile.cluster.authorities` sets it, once brokers trust its certificates.
"""

from __future__ import annotations

from plimsoll_core.security.client_certificates import TLS_LOGIN
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.pki.authority import KeyPair
from plimsoll_operator.reconcile.reconcile_term import Term


class _Signing:
    # None if not known yet, or not needed.
    authority: KeyPair | None = None
    # Why there is none, and the remedy; "" if it will be known soon.
    unusable: str = ""


def asked(cluster: LogCluster) -> bool:
    """Return True if a listener asks for certificates."""
    return any(TLS_LOGIN in (one.authentication or ()) for one in cluster.listeners)


def sign_by(term: Term, authority: KeyPair | None, unusable: str) -> None:
    known = term.kept(_Signing, _Signing)
    known.authority, known.unusable = authority, unusable


def signing(term: Term) -> KeyPair | None:
    return term.kept(_Signing, _Signing).authority


def why_unusable(term: Term) -> str:
    return term.kept(_Signing, _Signing).unusable
