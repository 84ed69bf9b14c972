"""The clients that chaos can run, by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.chaos_clients.frame import (
    GROUP,
    PLAIN,
    Kind,
    Place,
    PrintingReader,
    PrintingWriter,
    Reader,
    Writer,
    static_instance,
)
from tests.integration.chaos_clients.java import Java
from tests.integration.chaos_clients.librdkafka import Librdkafka
from tests.integration.chaos_clients.logins import login_word


class PythonProgram(Kind):
    """Of kafka-python or aiokafka: python_program.py."""

    def __init__(self, library: str) -> None:
        module = "tests.integration.chaos_clients.python_program"
        self._command = (sys.executable, "-m", module, library)

    def writer(self, place: Place, topic: str, keys: int) -> Writer:
        words = (
            "producer",
            topic,
            str(keys),
            str(place.seed),
            place.bootstrap,
            login_word(place.writer),
        )
        return PrintingWriter(place, topic, keys, (*self._command, *words))

    def reader(self, place: Place, number: int) -> Reader:
        instance = static_instance(number) or ""
        words = ("consumer", PLAIN, GROUP, instance, *_where(place, place.reader))
        return PrintingReader(place, number, (*self._command, *words))


def _where(place: Place, login: Path | None) -> tuple[str, str]:
    return place.bootstrap, login_word(login)


KINDS: dict[str, Callable[[], Kind]] = {
    "librdkafka": Librdkafka,
    "java": lambda: Java("4.1.0"),
    "java-3.9": lambda: Java("3.9.1"),
    "kafka-python": lambda: PythonProgram("kafka-python"),
    "aiokafka": lambda: PythonProgram("aiokafka"),
}
