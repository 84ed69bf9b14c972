"""What a broker's Secret holds for its peers inside, and what the broker told of it last.

Read by `inside` with each pass, for every broker.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.broker_figures import BrokerFigures, InsideFigures
from plimsoll_net.inside_identity import CERTIFICATE, KEY
from plimsoll_operator.api import labels
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.manifests import listener_secrets as manifests
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.pki.authority import KeyPair, why_unusable
from plimsoll_operator.reconcile.reconcile_term import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByBroker:
    """A broker, its Secret, and what it told with its last heartbeat."""

    broker_id: BrokerId
    secret: Object | None
    files: dict[str, bytes]
    told: InsideFigures | None
    takes_part: bool
    # Why its copy of the metadata, on disk, may still say Required; empty: it does not.
    copy_closed: str
    # Why its Secret is not written: it is somebody else's; empty: it is the cluster's.
    foreign: str

    @property
    def pair(self) -> KeyPair | None:
        """None: there is none that could be used."""
        pair = KeyPair(certificate=self.files.get(CERTIFICATE, b""), key=self.files.get(KEY, b""))
        return None if why_unusable(pair) else pair


async def held_by(term: Term, context: Context, broker_id: BrokerId) -> HeldByBroker:
    try:
        name = labels.broker_tls(context.name, broker_id)
        secret: Object | None = await term.kube.get(SECRETS, context.namespace, name)
    except NotFound:
        secret = None
    foreign = manifests.why_foreign(context, broker_id, secret)
    broker = term.image.brokers.get(broker_id)
    contact = term.controller.soft.contacts.get(broker_id)
    if broker is None or contact is None or contact.broker_epoch != broker.broker_epoch:
        figures = None
    else:
        figures = contact.figures
    told = None if figures is None else figures.inside
    return HeldByBroker(
        broker_id=broker_id,
        secret=secret,
        files=manifests.inside_of(secret),
        told=told,
        takes_part=broker is not None and not broker.fenced,
        copy_closed=_copy_closed(figures),
        foreign=foreign,
    )


def _copy_closed(figures: BrokerFigures | None) -> str:
    if figures is None or figures.inside is None:
        return "it has not sent a heartbeat yet."
    if figures.copied_offset is None:
        return (
            "it cannot update its metadata copy on disk, which still says Required (see its log)."
        )
    return "it still requires TLS." if figures.inside.only_tls else ""
