"""Rounds of a comparison: systems one after another, rows of a kind on one cluster."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers.results import Results
from bench.peers.rows import Figures, Row, Scale
from bench.peers.systems.system import Kind, MissingError, System


class Comparison:
    def __init__(self, rows: list[Row], scale: Scale, results: Results) -> None:
        self._rows = rows
        self._scale = scale
        self._results = results
        self._number = 0
        self.failed: list[str] = []

    def round(self, systems: list[type[System]]) -> None:
        """Measure every row on every system once."""
        turn = self._number % len(systems)
        self._number += 1
        for system in systems[turn:] + systems[:turn]:
            rows = [row for row in self._rows if system.name in row.systems]
            for together in on_one_cluster(system, rows):
                self._measure_all(system, together)

    def _measure_all(self, kind_of: type[System], rows: list[Row]) -> None:
        with TemporaryDirectory(prefix="bench-") as directory:
            system = kind_of(Path(directory) / "cluster", kind_of.needed(rows[0].kind))
            try:
                if not rows[0].starts:
                    system.start()
                for row in rows:
                    self._measure(system, row)
            except Exception as error:  # noqa: BLE001
                self.failed.append(f"{system.name}: {error!r}")
                print(f"failed: {self.failed[-1]}", file=sys.stderr, flush=True)
            finally:
                system.stop()

    def _measure(self, system: System, row: Row) -> None:
        figures = row.measure(system, self._scale)
        self._results.add(
            row=row.name,
            system=system.name,
            round=self._number,
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            load=os.getloadavg()[0],
            figures=figures,
        )
        print(f"round {self._number}, {system.name}, {row.name}: {told(figures)}", flush=True)


def on_one_cluster(system: type[System], rows: list[Row]) -> list[list[Row]]:
    """Put rows together that one cluster is enough for."""
    found: dict[str | Kind, list[Row]] = {}
    for row in rows:
        found.setdefault(row.name if row.fresh else system.needed(row.kind), []).append(row)
    return list(found.values())


def told(figures: Figures) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def available(wanted: list[type[System]]) -> list[type[System]]:
    """Return the systems that this machine has, and say what is missing of the others."""
    found = []
    for system in wanted:
        try:
            system.prepare()
            found.append(system)
        except MissingError as error:
            print(f"left out: {error}", file=sys.stderr, flush=True)
    return found
