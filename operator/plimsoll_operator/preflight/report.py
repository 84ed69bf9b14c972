"""Formats verdicts as text, for people or (`--json`) for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import fill

from plimsoll_operator.preflight.facts import Verdict

COLUMNS = 100


def failed(verdicts: Sequence[Verdict]) -> bool:
    """Return True if the installation should not go on."""
    return any(one.result == "failed" for one in verdicts)


def lines(verdicts: Sequence[Verdict]) -> str:
    """Yield `ok       storage-class          StorageClass …`, a paragraph each, and a closing
    line."""
    width = max((len(one.check) for one in verdicts), default=0)
    indent = " " * (len("warning") + width + 4)
    told = [
        fill(
            f"{one.result:<7}  {one.check:<{width}}  {one.message}",
            width=COLUMNS,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for one in verdicts
    ]
    counts = {
        word: sum(one.result == word for one in verdicts) for word in ("ok", "warning", "failed")
    }
    end = f"{counts['ok']} ok, {counts['warning']} with a warning, {counts['failed']} failed."
    return "\n".join([*told, end])


def as_json(verdicts: Sequence[Verdict]) -> str:
    """Return `{"ok": bool, "checks": [{"check", "result", "message"}]}`, on one line."""
    rows = [{"check": one.check, "result": one.result, "message": one.message} for one in verdicts]
    return json.dumps({"ok": not failed(verdicts), "checks": rows})
