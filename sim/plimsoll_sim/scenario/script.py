"""Reads a scenario's file: prose, and blocks of commands with their expected output.

    # Prose: lines that begin with a hash.

    kill 1
    until leader=2
    show partition
    ----
    orders-0  leader 2  LE 1  ...

A block ends at an empty line. The output of its commands follows `----`; a block without output has
no such line. Comments may stand between commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

RULE = "----"


class BadScript(Exception):
    """Raised if the scenario itself is wrong: it has an unknown word, or a step that is
    impossible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptLine:
    """One command line of a scenario."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of commands. `source`: the text above `----`; `expected`: the text below it."""

    source: tuple[str, ...]
    commands: tuple[ScriptLine, ...]
    expected: tuple[str, ...]

    def text(self, printed: Iterable[str]) -> str:
        """Return the block's text with `printed` as its output."""
        lines = tuple(printed)
        return "\n".join((*self.source, *((RULE, *lines) if lines else ())))


def parse(text: str) -> list[str | Block]:
    """Return the parts of a scenario's text in their order: paragraphs of prose, unchanged, and
    blocks."""
    found: list[str | Block] = []
    paragraph: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            paragraph.append(line.rstrip())
        elif paragraph:
            found.append(_paragraph(paragraph, number - len(paragraph)))
            paragraph = []
    return found


def _paragraph(lines: list[str], first: int) -> str | Block:
    at = lines.index(RULE) if RULE in lines else len(lines)
    commands = tuple(
        ScriptLine(line=number, text=line)
        for number, line in enumerate(lines[:at], first)
        if not line.startswith("#")
    )
    if not commands and at == len(lines):
        return "\n".join(lines)
    return Block(source=tuple(lines[:at]), commands=commands, expected=tuple(lines[at + 1 :]))


class Words:
    """The words of a command: plain words in their order, and `name=value` words. A command takes
    the words that it knows; any left over are an error."""

    def __init__(self, text: str) -> None:
        self.verb, *self.all = text.split()
        self.plain = [word for word in self.all if "=" not in word]
        self._options = dict(word.split("=", 1) for word in self.all if "=" in word)

    def take(self, what: str) -> str:
        """Take the next plain word; `what` names it in the error."""
        if not self.plain:
            raise BadScript(f"{self.verb} needs {what}")
        return self.plain.pop(0)

    def rest(self, what: str) -> list[str]:
        """Take all plain words that are left, at least one."""
        found, self.plain = self.plain, []
        if not found:
            raise BadScript(f"{self.verb} needs {what}")
        return found

    def flag(self, name: str) -> bool:
        """Return True if the command has this plain word, and take it."""
        if name not in self.plain:
            return False
        self.plain.remove(name)
        return True

    def option(self, name: str, otherwise: str) -> str:
        return self._options.pop(name, otherwise)

    def dotted(self) -> dict[str, str]:
        """Take the options with a dot in their names: configs by Kafka's names."""
        names = [name for name in self._options if "." in name]
        return {name: self._options.pop(name) for name in names}

    def number(self, name: str, otherwise: int) -> int:
        return whole(self.option(name, str(otherwise)))

    def end(self) -> None:
        """Raise BadScript if any word is left."""
        left = [*self.plain, *(f"{name}={value}" for name, value in self._options.items())]
        if left:
            raise BadScript(f"{self.verb} does not know {' '.join(left)}")


def whole(text: str) -> int:
    """Parse an integer; raises BadScript."""
    try:
        return int(text)
    except ValueError:
        raise BadScript(f"{text} is no number") from None


def microseconds(text: str) -> int:
    """Parse a duration such as 3s or 200ms. Returns microseconds. Raises BadScript."""
    for unit, us in (("ms", 1_000), ("s", 1_000_000)):
        if text.endswith(unit) and text[: -len(unit)].isdecimal():
            return int(text[: -len(unit)]) * us
    raise BadScript(f"{text} is no time: 3s, 200ms")
