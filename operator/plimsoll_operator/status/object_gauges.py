"""Gauges of the users' objects, as this process last saw them: leading or not.

What an object's own status says is what is shown here, so a person who looks at the object after
an alert finds the same words.  Series are bounded: of many, the first by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from prometheus_client.core import Metric

from plimsoll_operator.kube.seen_objects import INVALID_SPEC, Objects, Shelf
from plimsoll_operator.status.metric_rows import TABLE

NAMED_MAX = 100
VERDICTS = ("", "Passed", "Violated", "Inconclusive")


def object_gauges(objects: Objects) -> Iterator[Metric]:
    """Of every kind."""
    shelves: dict[str, Shelf[Any]] = {
        "LogCluster": objects.clusters,
        "Topic": objects.topics,
        "Reassignment": objects.reassignments,
        "Rebalance": objects.rebalances,
        "Verification": objects.verifications,
        "User": objects.users,
        "LogBroker": objects.log_brokers,
    }
    stalled: dict[tuple[str, ...], float] = {}
    not_ready: Counter[str] = Counter()
    for kind, shelf in shelves.items():
        for (namespace, name), conditions in shelf.all_conditions():
            for shown in conditions:
                if shown.type == "Stalled" and shown.status == "True":
                    stalled[namespace, kind, name, shown.reason] = 1
                elif shown.type == "Ready" and shown.status == "False":
                    not_ready[kind] += 1
        for namespace, name in shelf.unread_keys():
            stalled[namespace, kind, name, INVALID_SPEC] = 1
    yield TABLE.gauges("plimsoll_stalled", dict(islice(sorted(stalled.items()), NAMED_MAX)))
    counts = {(kind,): float(not_ready[kind]) for kind in shelves}
    yield TABLE.gauges("plimsoll_not_ready_objects", counts)
    yield from _verifications(objects.verifications)


def _verifications(shelf: Shelf[Any]) -> Iterator[Metric]:
    """A namespace that has any shows every verdict."""
    verdicts: dict[tuple[str, ...], float] = {}
    violated: dict[tuple[str, ...], float] = {}
    for found in shelf:
        namespace, name = found.key
        for verdict in VERDICTS:
            verdicts.setdefault((namespace, verdict), 0)
        verdict = shelf.verdict(found.key)
        if (namespace, verdict) in verdicts:
            verdicts[namespace, verdict] += 1
        if verdict == "Violated":
            violated[namespace, name] = 1
    yield TABLE.gauges("plimsoll_verifications", verdicts)
    named = dict(islice(sorted(violated.items()), NAMED_MAX))
    yield TABLE.gauges("plimsoll_verification_violated", named)
