"""Keeps, for the metrics, when the authorities and listener certificates of a LogCluster expire.

The reconcilers that manage certificates record here what they read in each pass. They record a
broker's certificate before they replace it, so an approaching expiry is seen even when the Secret
cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from plimsoll_operator.pki.authority import Unreadable, describe

AuthorityKind = Literal["authority", "clients-authority", "internal-authority"]
"""Kinds of authorities (CAs) of a cluster: the one that signs listeners' certificates, the one that
signs users', and the one for connections between brokers and the operator."""
CertificateKind = Literal["own", "given"]
"""Kinds of listener certificates. `own`: signed by the cluster's authority, and renewed by the
operator; `given`: taken from a Secret that a user supplied."""


class ListenerCertificate(NamedTuple):
    """One time series of the metrics: of a kind of certificates of one listener, or, with an empty
    `listener`, of an authority. `not_after_ms`: the expiry in milliseconds since 1970; of a
    listener, the earliest among all brokers."""

    listener: str
    kind: CertificateKind | AuthorityKind
    not_after_ms: int


@dataclass(slots=True)
class CertificateTimes:
    """The expiry times of the certificates of one cluster, as recorded during one controller
    term."""

    # Expiry (milliseconds since 1970) by broker and listener.
    _ends: dict[tuple[int, str], tuple[CertificateKind, int]] = field(default_factory=dict)
    # Expiry of the authority that signs now.
    _authorities: dict[AuthorityKind, int] = field(default_factory=dict)

    def saw_authority(self, kind: AuthorityKind, certificate: bytes) -> None:
        """Record when the authority of this kind, given in PEM, expires. If it cannot be decoded,
        forget the recorded time; a condition of the LogCluster reports it."""
        try:
            self._authorities[kind] = describe(certificate).validity.not_after_ms
        except Unreadable:
            self._authorities.pop(kind, None)

    def forget_authority(self, kind: AuthorityKind) -> None:
        """Forget the authority of this kind: it does not exist, or is no longer needed."""
        self._authorities.pop(kind, None)

    def saw(self, broker_id: int, listener: str, kind: CertificateKind, chain: bytes) -> None:
        """Record when the certificate (PEM) that a broker has for a listener expires. If it cannot
        be decoded, forget the recorded time; the pass replaces or reports the certificate."""
        try:
            ends_ms = describe(chain).validity.not_after_ms
        except Unreadable:
            self._ends.pop((broker_id, listener), None)
        else:
            self._ends[broker_id, listener] = kind, ends_ms

    def keep(self, brokers: Iterable[int], listeners: Iterable[str]) -> None:
        """Forget each listener certificate of a broker that is not in `brokers` or of a listener
        that is not in `listeners`. Times of authorities stay."""
        there = {(broker, listener) for listener in listeners for broker in brokers}
        for gone in self._ends.keys() - there:
            del self._ends[gone]

    def shown(self) -> Iterator[ListenerCertificate]:
        found: dict[tuple[str, CertificateKind | AuthorityKind], int] = {
            ("", kind): ends_ms for kind, ends_ms in self._authorities.items()
        }
        for (_, listener), (whose, ends_ms) in self._ends.items():
            key: tuple[str, CertificateKind | AuthorityKind] = listener, whose
            found[key] = min(ends_ms, found.get(key, ends_ms))
        for (listener, kind), ends_ms in sorted(found.items()):
            yield ListenerCertificate(listener, kind, ends_ms)
