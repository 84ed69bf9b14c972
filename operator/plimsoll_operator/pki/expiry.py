"""When the certificates of a LogCluster's listeners end, for metrics.

The reconciler of listeners tells what it saw with each pass; what brokers hold is told before it is
replaced, so an end that draws near is seen also where a Secret cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from plimsoll_operator.pki.authority import Unreadable, describe

CertificateKind = Literal["authority", "own", "given"]
"""The cluster's authority; signed by it and renewed by the operator; given by a user's Secret."""


class ListenerCertificate(NamedTuple):
    """`listener`: empty for the authority.  `not_after_ms`: of the broker whose ends first."""

    listener: str
    kind: CertificateKind
    not_after_ms: int


@dataclass(slots=True)
class CertificateTimes:
    """Of one cluster and term."""

    # When each ends (milliseconds since 1970), by broker (None: the authority) and listener.
    _ends: dict[tuple[int | None, str], tuple[CertificateKind, int]] = field(default_factory=dict)

    def saw(
        self, broker_id: int | None, listener: str, kind: CertificateKind, chain: bytes
    ) -> None:
        """What cannot be read has no end; the pass replaces it, or says so."""
        try:
            ends_ms = describe(chain).validity.not_after_ms
        except Unreadable:
            self._ends.pop((broker_id, listener), None)
        else:
            self._ends[broker_id, listener] = kind, ends_ms

    def keep(self, brokers: Iterable[int], listeners: Iterable[str], *, authority: bool) -> None:
        """Forget all others."""
        there: set[tuple[int | None, str]] = {(None, "")} if authority else set()
        there |= {(broker, listener) for listener in listeners for broker in brokers}
        for gone in self._ends.keys() - there:
            del self._ends[gone]

    def shown(self) -> Iterator[ListenerCertificate]:
        found: dict[tuple[str, CertificateKind], int] = {}
        for (_, listener), (kind, ends_ms) in self._ends.items():
            key = listener, kind
            found[key] = min(ends_ms, found.get(key, ends_ms))
        for (listener, kind), ends_ms in sorted(found.items()):
            yield ListenerCertificate(listener, kind, ends_ms)
