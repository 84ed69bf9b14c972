"""Results of the comparison: JSON, one entry for each row, system and round."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.systems.system import ROOT

FILE = ROOT / "build" / "bench" / "results.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    median: float
    least: float
    most: float


class Results:
    """A run takes the place of earlier entries of the same rows and systems."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self.entries: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []

    def forget(self, rows: Iterable[str], systems: Iterable[str]) -> None:
        rows, systems = {*rows}, {*systems}
        self.entries = [
            one for one in self.entries if one["row"] not in rows or one["system"] not in systems
        ]

    def add(self, **entry: Any) -> None:
        """Store an entry; what was measured before an interruption is kept."""
        self.entries.append(entry)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self.entries, indent=1))

    def values(self, row: str, system: str, figure: str) -> list[float]:
        return [
            one["figures"][figure]
            for one in self.entries
            if (one["row"], one["system"]) == (row, system) and figure in one["figures"]
        ]

    def spread(self, row: str, system: str, figure: str) -> Spread | None:
        found = self.values(row, system, figure)
        if not found:
            return None
        return Spread(median=statistics.median(found), least=min(found), most=max(found))

    def others_cores(self, rows: Iterable[str]) -> float:
        """Return the most that other programs took in a round of these rows."""
        wanted = {*rows}
        return max(
            (
                one["figures"].get("others_cores", 0.0)
                for one in self.entries
                if one["row"] in wanted
            ),
            default=0.0,
        )
