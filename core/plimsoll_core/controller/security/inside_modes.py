"""Commits the TLS mode of connections between brokers and controllers, and their allowed
certificates.

Called for SetInsideMode and AllowCertificates. The mode changes one step at a time. It becomes
Required only if that cuts no broker off: every active broker has reported that it presents a
committed certificate and has no plaintext connection left. The step from Required to Permissive is
always possible, that from Permissive to Off once no broker requires TLS. Source:
docs/design/012-inside-certificates.md.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker
from plimsoll_core.cluster.records import CertificatesAllowed, InsideModeSet
from plimsoll_core.controller.kernel.decision import DecisionContext, too_old
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.brokers import AllowCertificates, SetInsideMode
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_core.security.inside import CERTIFICATES_MAX, ORDER, InsideMode

SINCE = 3
"""The metadata version that introduced the records of this module."""


def set_inside_mode(turn: DecisionContext, request: SetInsideMode) -> Answer | Refusal:
    mode = turn.image.inside.mode
    if request.mode is mode:
        return Done()
    refusal = _too_old(turn) or _a_leap(mode, request.mode)
    if refusal is None and request.mode is not InsideMode.PERMISSIVE:
        refusal = _cuts_off(turn, request.mode)
    if refusal is not None:
        return refusal
    turn.add(InsideModeSet(cause="declared", mode=request.mode))
    return Done()


def allow_certificates(turn: DecisionContext, request: AllowCertificates) -> Answer | Refusal:
    if turn.image.inside.of(request.broker_id) == request.sha256:
        return Done()
    if refusal := _too_old(turn):
        return refusal
    if len(request.sha256) > CERTIFICATES_MAX:
        text = (
            f"The operator stated {len(request.sha256)} certificates for internal TLS of broker "
            f"{request.broker_id}, more than the {CERTIFICATES_MAX} that a broker can have; this "
            "is a bug of the operator, please report it."
        )
        return Refusal(reason=Reason.InvalidRequest, message=text)
    turn.add(
        CertificatesAllowed(cause="declared", broker_id=request.broker_id, sha256=request.sha256)
    )
    return Done()


def _too_old(turn: DecisionContext) -> Refusal | None:
    return too_old(turn, SINCE, "spec.certificates needs")


def _a_leap(now: InsideMode, wanted: InsideMode) -> Refusal | None:
    if abs(ORDER.index(now) - ORDER.index(wanted)) == 1:
        return None
    text = (
        f"The internal TLS mode (spec.certificates.internal.mode) cannot change from {now.value} "
        f"to {wanted.value} directly; set it to Permissive first."
    )
    return Refusal(reason=Reason.InvalidRequest, message=text)


def _cuts_off(turn: DecisionContext, wanted: InsideMode) -> Refusal | None:
    """Return a refusal if the mode `wanted` would cut an unfenced broker off from its peers, or
    None."""
    for _, broker in sorted(turn.image.brokers.items()):
        if not broker.fenced and (why := _not_ready(turn, broker, wanted)):
            text = (
                f"Internal TLS does not change to mode {wanted.value} yet, because broker "
                f"{broker.id} {why}. The operator makes the change by itself when no broker "
                "prevents it; if that lasts, see the log of this broker."
            )
            return Refusal(reason=Reason.InsideNotReady, message=text)
    return None


def _not_ready(turn: DecisionContext, broker: Broker, wanted: InsideMode) -> str:
    contact = turn.soft.contacts.get(broker.id)
    if contact is None or contact.broker_epoch != broker.broker_epoch:
        return "has sent no heartbeat to this controller"
    told = None if contact.figures is None else contact.figures.inside
    if wanted is InsideMode.OFF:
        return "still requires TLS" if told is not None and told.only_tls else ""
    if told is None or not told.sha256:
        return "presents no certificate yet"
    if told.sha256 not in turn.image.inside.of(broker.id):
        return "presents a certificate that is not in the metadata log"
    if told.plaintext:
        return f"has {told.plaintext} connections in plaintext to other brokers or the controller"
    return ""
