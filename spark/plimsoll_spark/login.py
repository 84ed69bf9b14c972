"""A driver's credentials: reads the mounted Secret of a User.

It reads `librdkafka.conf`, `java.properties` and `ca.crt` for the two kinds of client in a run.
Called by `run`, `drive` and `checks`. The values are secret: they are neither logged nor reported.
"""

from __future__ import annotations

import re
from pathlib import Path

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_MEANT = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
SUITES = ",".join(
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    )
)
"""ChaCha20 first: only Java's optimising compiler, which `session` leaves out, uses the processor's
instructions for AES. Without it a core decrypts 30 MB/s with AES-GCM, 110 with ChaCha20 (Java
17.0.15)."""


def librdkafka(login: Path | None) -> dict[str, str]:
    """Return the settings besides `bootstrap.servers`; empty without a login. Raises OSError."""
    if login is None:
        return {}
    found = _lines(login / "librdkafka.conf")
    authority = login / "ca.crt"
    if authority.exists():
        found["ssl.ca.location"] = str(authority)
    return found


def java(login: Path | None) -> dict[str, str]:
    """Return the same settings for Java's clients, as Spark's Kafka source takes them."""
    if login is None:
        return {}
    lines = _lines(login / "java.properties")
    found = {name: _unescaped(value) for name, value in lines.items()}
    if found.get("security.protocol", "").endswith("SSL"):
        found.setdefault("ssl.cipher.suites", SUITES)
    return {f"kafka.{name}": value for name, value in found.items()}


def _unescaped(value: str) -> str:
    """Unescape as `java.util.Properties` does: escapes are UTF-16 code units, and two may form one
    character."""
    text = _ESCAPE.sub(lambda found: _meant(found[1]), value)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(escaped: str) -> str:
    return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _MEANT.get(escaped, escaped)


def _lines(path: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in path.read_text().splitlines() if "=" in line)
    return {name: value for name, _, value in pairs if name != "bootstrap.servers"}
