"""What would be offline, or under min ISR, if some brokers went now, at once.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_operator.status.cluster_views import ROWS_MAX, JsonView
from plimsoll_operator.status.partition_health import margin


class Affected(JsonView, frozen=True, kw_only=True):
    """A partition that would be hurt; `already`: it is so now."""

    topic: str
    partition: int
    left_in_isr: tuple[int, ...]
    min_isr: int
    already: bool


class WhatIfView(JsonView, frozen=True, kw_only=True):
    """If these brokers went now, at once: what no broker could lead, and where acks=all would stop.
    At most so many rows of each; the counts are of all."""

    brokers: tuple[int, ...]
    unknown: tuple[int, ...]
    leaders_that_move: int
    offline: int
    under_min_isr: int = msgspec.field(name="underMinISR")
    offline_partitions: list[Affected]
    under_partitions: list[Affected]


def what_if(image: ClusterImage, brokers: Sequence[int]) -> WhatIfView:
    """If all of them went at once, now."""
    gone = {BrokerId(b) for b in brokers}
    keys = {key for b in gone for key in image.hosted.get(b, ())}
    hurt = [image.partitions[key] for key in sorted(keys, key=lambda key: _order(image, key))]
    offline = [p for p in hurt if not _could_lead(image, p, gone)]
    dark = {p.key for p in offline}
    under = [p for p in hurt if p.key not in dark and len(_left(p, gone)) < p.effective_min_isr]
    return WhatIfView(
        brokers=tuple(sorted(gone)),
        unknown=tuple(sorted(b for b in gone if b not in image.brokers)),
        leaders_that_move=sum(p.leader in gone and p.key not in dark for p in hurt),
        offline=len(offline),
        under_min_isr=len(under),
        offline_partitions=[
            _affected(image, p, gone, already=p.leader is None) for p in islice(offline, ROWS_MAX)
        ],
        under_partitions=[
            _affected(image, p, gone, already=margin(p) < 0) for p in islice(under, ROWS_MAX)
        ],
    )


def _order(image: ClusterImage, key: PartitionKey) -> tuple[str, int]:
    return image.topics[key.topic_id].name, key.index


def _left(p: Partition, gone: set[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(b for b in p.isr if b not in gone)


def _could_lead(image: ClusterImage, p: Partition, gone: set[BrokerId]) -> bool:
    """A replica that is certainly complete stays, and takes part: a member of the ISR, or where
    nobody is left of that, of the ELR."""
    if p.leader is not None and p.leader not in gone:
        return True
    left = _left(p, gone) or tuple(b for b in p.elr if b not in gone)
    return any(b in image.brokers and image.brokers[b].active for b in left)


def _affected(image: ClusterImage, p: Partition, gone: set[BrokerId], *, already: bool) -> Affected:
    return Affected(
        topic=image.topics[p.topic_id].name,
        partition=p.index,
        left_in_isr=_left(p, gone),
        min_isr=p.effective_min_isr,
        already=already,
    )
