"""Gathers what the report says about a run besides its findings: checks, versions, bytes a second,
faults of its drill, and the run before it. Called by `run`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import confluent_kafka
import msgspec

from plimsoll_spark.settings import Settings
from plimsoll_spark.values import Facts, FaultMark, Findings

DRILL = "drill.json"
"""The operator's record of the drill, beside the report."""
FAULTS_MAX = 20
AT_MS_MAX = 253_402_300_800_000
"""Bound on a fault's time: the year 10000, in milliseconds since 1970."""
PARTITIONS_MAX = 200
"""Bound on the partitions in the report's table: the ones with the longest stalls."""


class _Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    fault: str
    at_ms: Annotated[float, msgspec.Meta(ge=0, lt=AT_MS_MAX)]
    result: str = ""
    message: str = ""
    until_ms: Annotated[float, msgspec.Meta(ge=0, lt=AT_MS_MAX)] | None = None


class _Drill(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    steps: tuple[_Step, ...] = ()


def facts(settings: Settings, findings: Findings, topic_id: str | None, drill: str | None) -> Facts:
    """Return the facts of a run. `drill`: the operator's record as JSON, None if there is none."""
    rate = findings.records_per_second
    size = settings.produce.record_bytes
    worst = sorted(findings.partitions, key=lambda one: -one.longest_stall)[:PARTITIONS_MAX]
    return Facts(
        checks=settings.checks,
        versions=versions(),
        bootstrap=settings.bootstrap,
        topic_id=topic_id,
        megabytes_per_second=None if rate is None else round(rate * size / 1e6, 3),
        partitions=tuple(sorted(worst, key=lambda one: one.partition)),
        partitions_left_out=len(findings.partitions) - len(worst),
        faults=marks(drill),
        before=settings.previous,
    )


def marks(drill: str | None) -> tuple[FaultMark, ...]:
    """Return the faults in the operator's record, at most `FAULTS_MAX`; none if it is None or
    cannot be read."""
    try:
        steps = msgspec.json.decode(drill or "{}", type=_Drill).steps
    except msgspec.DecodeError:
        return ()
    return tuple(
        FaultMark(
            fault=one.fault,
            at_ms=one.at_ms,
            result=one.result,
            message=one.message,
            until_ms=one.until_ms,
        )
        for one in steps[:FAULTS_MAX]
    )


def versions() -> dict[str, str]:
    """Return the versions of Python, librdkafka and the installed packages of a driver, by name."""
    found = {
        "librdkafka": confluent_kafka.libversion()[0],
        "python": platform.python_version(),
    }
    for name in ("plimsoll", "pyspark", "pyarrow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
