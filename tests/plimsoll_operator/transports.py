"""The transport over the official client, to a server of a test."""

from kubernetes.aio.client.configuration import Configuration

from plimsoll_operator.kube.official_transport import Access, OfficialTransport


def transport_to(url: str, *, connections: int = 8, token: str = "") -> OfficialTransport:
    """`token` empty: to a server that asks for no credentials."""
    configuration = Configuration(host=url)
    if token:
        configuration.api_key["BearerToken"] = token
        configuration.api_key_prefix["BearerToken"] = "Bearer"
    return OfficialTransport(Access(configuration), connections=connections)
