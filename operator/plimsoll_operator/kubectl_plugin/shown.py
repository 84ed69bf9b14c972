"""Prints results and errors of `kubectl plimsoll`: tables for people, JSON or YAML for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import yaml
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from plimsoll_operator.kube.errors import ApiError


class Problem(Exception):
    """Raised if the command cannot continue: it prints the message, a sentence, and exits with an
    error."""


class ViewUnavailable(Problem):
    """Raised if no operator that leads the cluster answers. Some verbs then show the last status of
    objects instead."""


def told(error: ApiError) -> str:
    """Return the API server's message about the failed request `error`, or the HTTP status if the
    API server sent no message."""
    return f"{error.reply or f'status {error.status}'}."


SENTENCES = frozenset({"message", "what", "cause", "asked by", "until", "note", "value"})
"""Titles of the columns that wrap on a narrow terminal. Other columns are cut."""
WIDTH = 220
"""Width of tables, in characters, if the output is no terminal."""


class Format(Enum):
    """The machine-readable formats, values of the option `-o`."""

    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The output of a verb. `data`: printed with `-o json` or `-o yaml`. `parts`: printed
    otherwise, one below the other; or `raw` if it is not empty, unchanged. `over`: True if
    repeating the verb would show nothing new. `code`: the exit code."""

    data: Any
    parts: Sequence[RenderableType]
    raw: str = ""
    over: bool = False
    code: int = 0


def as_text(data: Any, output: str) -> str:
    """Return `data` as JSON or YAML. `output`: `json`, else YAML."""
    plain = msgspec.to_builtins(data)
    if output == "json":
        return json.dumps(plain, indent=2, ensure_ascii=False)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100).rstrip()


def group(shown: Findings) -> Group:
    return Group(*shown.parts)


def console() -> Console:
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=WIDTH)


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a table like those of `kubectl get`: titles in capitals, no lines."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        long = title in SENTENCES
        made.add_column(title.upper(), overflow="fold" if long else "ellipsis", no_wrap=not long)
    for row in rows:
        made.add_row(*[cell if isinstance(cell, Text) else text(cell) for cell in row])
    return made


def with_pools(
    titles: Sequence[str], cells: Iterable[Sequence[Any]], rows: Sequence[Mapping[str, Any]]
) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
    """Return a table of brokers with a column `pool` after the first one, or unchanged if no broker
    has a pool. `rows`: the brokers, in the order of `cells`."""
    if not any(row.get("pool") for row in rows):
        return titles, cells
    both = zip(cells, rows, strict=True)
    added = [[first, row.get("pool"), *more] for (first, *more), row in both]
    return (titles[0], "pool", *titles[1:]), added


def text(value: Any) -> Text:
    """Return a table's cell: a list is joined by commas; None and "" become a dash."""
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return Text("-" if value in (None, "") else visible(str(value)))


def visible(words: str) -> str:
    """Return `words` with unprintable characters (such as terminal escape sequences) escaped; line
    feeds stay. The text may come from objects that other users wrote."""
    return "".join(
        one if one == "\n" or one.isprintable() else one.encode("unicode_escape").decode()
        for one in words
    )


def warned(value: Any, bad: Any) -> Text:
    """Return a table's cell, in bold red if `bad` is true."""
    found = text(value)
    if bad:
        found.stylize("bold red")
    return found


def heading(words: str) -> Text:
    return Text(f"\n{visible(words)}", style="bold")


def line(words: str, *, bad: bool = False) -> Text:
    return Text(visible(words), style="bold red" if bad else "")


def size(count: int | None) -> str | None:
    """Return a number of bytes in the largest unit that makes it at least 1, such as `1.5 MiB`;
    None for None."""
    if count is None:
        return None
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
