"""Which suite a listener with TLS takes of those that a client offers."""

import pytest
import uvloop
from tests.plimsoll_broker.tls_listening import s_client, tls_serving


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


CHACHA = "TLS_CHACHA20_POLY1305_SHA256"
AES = "TLS_AES_256_GCM_SHA384"
PREFERENCES = {
    "1.3 ChaCha20": (("-tls1_3", "-ciphersuites", f"{CHACHA}:{AES}"), CHACHA),
    "1.3 AES": (("-tls1_3", "-ciphersuites", f"TLS_AES_128_GCM_SHA256:{AES}:{CHACHA}"), AES),
    "1.2 ChaCha20": (("-tls1_2", "-cipher", "ECDHE+CHACHA20:ECDHE+AESGCM"), "CHACHA20"),
    "1.2 AES": (("-tls1_2", "-cipher", "ECDHE+AESGCM:ECDHE+CHACHA20"), "GCM"),
}


@pytest.mark.parametrize(("options", "suite"), PREFERENCES.values(), ids=PREFERENCES)
async def test_client_preferring_chacha20_gets_it(tmp_path, options, suite):
    async with tls_serving(tmp_path) as harness:
        printed = await s_client(harness.server.port, *options)
    (chosen,) = {line.split()[-1] for line in printed.splitlines() if "Cipher is" in line}
    assert suite in chosen
