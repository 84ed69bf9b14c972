"""A driver's credentials: reads the mounted Secret of a User.

It reads `librdkafka.conf` and `ca.crt`. Called by `run` and `drive`. The values are
secret: they are neither logged nor reported.
"""

from __future__ import annotations

from pathlib import Path

BOOTSTRAP = "bootstrap.servers"


def librdkafka(login: Path | None) -> dict[str, str]:
    """Return the librdkafka settings by which to log in, without `bootstrap.servers`. `login`: the
    directory of the mounted Secret; None: no login, and no settings. Raises OSError."""
    if login is None:
        return {}
    found = _lines(login / "librdkafka.conf")
    authority = login / "ca.crt"
    if authority.exists():
        found["ssl.ca.location"] = str(authority)
    return found


def stated_brokers(login: Path) -> frozenset[str]:
    """Return the brokers' addresses that a mounted Secret states; it is a login for these alone.
    Raises OSError."""
    text = (login / "librdkafka.conf").read_text()
    stated = [
        line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{BOOTSTRAP}=")
    ]
    return frozenset(one.strip() for line in stated for one in line.split(",") if one.strip())


def _lines(path: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in path.read_text().splitlines() if "=" in line)
    return {name: value for name, _, value in pairs if name != BOOTSTRAP}
