"""A user's folder of `plimsoll local --secure`, as each library wants to be told of it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any


def librdkafka_login(folder: Path | None) -> dict[str, Any]:
    return {} if folder is None else _told(folder / "librdkafka.conf")


def java_login(folder: Path | None) -> dict[str, object]:
    if folder is None:
        return {}
    told: dict[str, object] = {**_told(folder / "java.properties")}
    del told["ssl.truststore.certificates"]  # of many lines; the arguments are read line by line
    return {**told, "ssl.truststore.location": folder / "ca.crt"}


def login_word(folder: Path | None) -> str:
    """The argument of a program."""
    return "" if folder is None else str(folder)


def python_login(word: str) -> dict[str, Any]:
    """Of kafka-python."""
    if not word:
        return {}
    folder = Path(word)
    return {**_sasl(folder), "ssl_cafile": str(folder / "ca.crt")}


def aiokafka_login(word: str) -> dict[str, Any]:
    if not word:
        return {}
    folder = Path(word)
    return {**_sasl(folder), "ssl_context": ssl.create_default_context(cafile=folder / "ca.crt")}


def _sasl(folder: Path) -> dict[str, Any]:
    told = _told(folder / "librdkafka.conf")
    return {
        "security_protocol": told["security.protocol"],
        "sasl_mechanism": told["sasl.mechanism"],
        "sasl_plain_username": told["sasl.username"],
        "sasl_plain_password": told["sasl.password"],
    }


def _told(path: Path) -> dict[str, str]:
    """All but where to begin, which the run says."""
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    config = dict(line.split("=", 1) for line in lines)
    config.pop("bootstrap.servers", None)
    return config
