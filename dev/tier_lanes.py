"""Lists the tiers of `make test`, and the lanes in which they run.

`dev/tiers.py` runs the tiers. On Kubernetes all tests share one release of the chart, in three
stages: tests that only use the release; tests that kill or restart one of its pods, after which
another pod leads within seconds; then, one by one, tests that upgrade the release, stop or
disconnect all its pods, or must be the only ones that kill a pod. pytest-xdist runs two files of
the first two stages at a time.
"""

import enum
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG = re.compile(r"(?<!\")pytest\.mark\.long\b")
"""Matches the mark `long` in a test's source, but not within a string."""


class Lane(enum.Enum):
    """Groups of tiers. The tiers of a lane run in turn; lanes run beside each other."""

    RELEASE = enum.auto()  # on the Kubernetes of this machine, using the release
    BARE_NODE = enum.auto()  # on the same, but looking at nothing of the operator's
    PROCESSES = enum.auto()  # local clusters of real processes
    CLIENTS = enum.auto()  # programs of others, which take a local cluster for Kafka
    # These two bound no real time: they get the processor time that others leave.
    COMPUTING = enum.auto()
    SIMULATION = enum.auto()


PATIENT = frozenset({Lane.COMPUTING, Lane.SIMULATION})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A set of tests that need the same environment."""

    name: str
    about: str
    marker: str
    # Bounds a tier that hangs between tests; a test has a bound of its own. Many times what a tier
    # takes on an idle machine.
    limit_s: int
    lane: Lane
    paths: tuple[str, ...] = ("tests",)  # where its tests are: collecting all takes its time
    ignored: tuple[str, ...] = ()  # what lies there and is another tier's
    workers: int = 0  # files at a time, by pytest-xdist; 0: one after the other

    def selection(self, *, long: bool) -> str:
        """Return the expression for pytest's -m. The long tests are those of `make long`."""
        return f"({self.marker}) and {'' if long else 'not '}long"

    def looks_at(self, path: Path) -> bool:
        """Return True if the tier collects the tests of this file (a path from the top)."""
        return any(path.is_relative_to(under) for under in self.paths) and not any(
            path.is_relative_to(under) for under in self.ignored
        )

    def has_long_tests(self) -> bool:
        """Return True if a file of the tier marks tests as long."""
        for under in (ROOT / path for path in self.paths):
            files = [under] if under.is_file() else under.rglob("*.py")
            for file in files:
                if LONG.search(file.read_text()) and self.looks_at(file.relative_to(ROOT)):
                    return True
        return False


def e2e(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/e2e/test_{name}.py" for name in names)


# All tests in these folders are marked by their conftest.py.
MARKED = ("tests/integration", "tests/conformance", "tests/e2e", "tests/plimsoll_sim")
UNMARKED = "not (simulation or integration or conformance or spark or e2e)"
ALERTS = ("tests/helm/test_alerts.py",)
# Tests with namespaces and kinds of their own.
BARE = e2e("node", "metalog", "api_contract")
# Tests that leave the release and the operator's pods as they are: each may run beside any other.
USING = e2e(
    "demo",
    "operator",
    "cli",
    "mishaps",
    "racks",
    "admission",
    "tokens",
    "dead_replica",
    "executors",
    "pools",
    "hibernation",
)
# Tests that kill or restart operators in turn, and tolerate it when another test does.
KILLING = e2e("operations", "inside", "listeners", "drills")
TIERS = (
    Tier(name="e2e-using", about="a real Kubernetes: the demo, topics, kubectl plimsoll, mishaps",
         lane=Lane.RELEASE, marker="e2e", limit_s=3600, paths=USING, workers=2),
    Tier(name="e2e-killing", about="growing, moving, rolling, authorities, the operator killed",
         lane=Lane.RELEASE, marker="e2e", limit_s=3600, paths=KILLING, workers=2),
    Tier(name="e2e-alone", about="what disturbs all clusters: upgrades, outages, alerts",
         lane=Lane.RELEASE, marker="e2e", limit_s=3600, paths=("tests/e2e",),
         ignored=(*BARE, *USING, *KILLING)),
    Tier(name="node", about="the Kubernetes itself, its API, and the metadata log in it",
         lane=Lane.BARE_NODE, marker="e2e", limit_s=3600, paths=BARE),
    Tier(name="integration", about="local clusters of real processes, kill -9",
         lane=Lane.PROCESSES, marker="integration", limit_s=3600, paths=("tests/integration",),
         workers=2),
    Tier(name="conformance", about="unmodified Kafka clients and tools",
         lane=Lane.CLIENTS, marker="conformance", limit_s=3600, paths=("tests/conformance",)),
    Tier(name="spark", about="Spark jobs on this machine", lane=Lane.CLIENTS,
         marker="spark", limit_s=3600, paths=("tests/plimsoll_spark",)),
    Tier(name="simulation", about="whole clusters on virtual time: scenarios, mutants, chance",
         lane=Lane.SIMULATION, marker="simulation", limit_s=4500, paths=("tests/plimsoll_sim",)),
    Tier(name="unit", about="pure tests, properties, chart, manifests", lane=Lane.COMPUTING,
         marker=UNMARKED, limit_s=4500, ignored=(*MARKED, *ALERTS), workers=2),
    Tier(name="unit-alerts", about="promtool judges the alerts", lane=Lane.COMPUTING,
         marker=UNMARKED, limit_s=4500, paths=ALERTS),
)  # fmt: skip


def named(names: list[str]) -> list[Tier]:
    """Return the tiers of this name, or with names that continue it after a dash."""
    return [tier for tier in TIERS if any(f"{tier.name}-".startswith(f"{name}-") for name in names)]
