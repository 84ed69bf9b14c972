"""What comes on a connection before it is known whether there is TLS."""

from plimsoll_net.tls_connection import FIRST_BYTES, TlsConnection
from plimsoll_wire.framing import Framer


def test_tls_detection_bytes_fit_the_first_buffer() -> None:
    """What a session cannot take in the turn in which it gets the connection would be lost."""
    assert len(Framer(1024).get_buffer()) >= FIRST_BYTES
    unknown = TlsConnection(None)  # type: ignore[arg-type]
    assert len(unknown.get_buffer(65_536)) == FIRST_BYTES
