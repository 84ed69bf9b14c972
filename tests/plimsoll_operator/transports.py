"""The transport over the official client, to a server of a test."""

from kubernetes.aio.client.configuration import Configuration

from plimsoll_operator.kube.access import Access
from plimsoll_operator.kube.official import OfficialTransport


def transport_to(url: str, *, connections: int = 8) -> OfficialTransport:
    """To a server that asks for no credentials."""
    return OfficialTransport(Access(Configuration(host=url)), connections=connections)
