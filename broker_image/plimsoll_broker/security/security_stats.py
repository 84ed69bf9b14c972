"""SecurityStats: a broker's counts of logins and rights, for metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from plimsoll_core.security.client_certificates import CertificateRefusal
from plimsoll_core.security.tokens import TokenRefusal


@dataclass(slots=True)
class SecurityStats:
    """Counters that only grow."""

    denied: int = 0
    would_deny: int = 0
    logins: int = 0
    failed_logins: int = 0
    cut_off: int = 0
    tokens_refused: Counter[TokenRefusal] = field(default_factory=Counter)
    certificates_refused: Counter[CertificateRefusal] = field(default_factory=Counter)
