"""Builds the Rebalances that the operator creates itself: to empty brokers that leave, to fill
brokers that joined, and to balance measured load.

Users can watch, pause and cancel these Rebalances like their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.labels import PURPOSE, Manifest, short_id
from plimsoll_operator.api.logcluster import EvenLoadWish
from plimsoll_operator.kube.resources import REBALANCES
from plimsoll_operator.manifests.manifest_context import Context

Purpose = Literal["drain", "fill", "even"]

IDS_SPELT_MAX = 8


def rebalance_name(cluster: str, purpose: Purpose, brokers: Sequence[BrokerId]) -> str:
    """Return the name of the Rebalance that the operator creates for these brokers. It is the same
    at every call, so that the object is created once. More than `IDS_SPELT_MAX` ids are replaced by
    a digest."""
    ids = "-".join(map(str, brokers))
    if len(brokers) > IDS_SPELT_MAX:
        ids = f"{len(brokers)}-{hashlib.sha256(ids.encode()).hexdigest()[:10]}"
    return f"{cluster}-{purpose}-{ids}"


def other_name(context: Context, name: str) -> str:
    """Return the name for a Rebalance if an object of another owner already has the name `name`."""
    return f"{name}-{short_id(context.cluster_id)}"


def drain(context: Context, brokers: Sequence[BrokerId]) -> Manifest:
    """Build the Rebalance that moves all replicas away from `brokers`. It needs no approval, since
    the user removed the brokers from the spec."""
    spec = {"mode": "RemoveBrokers", "approval": "Automatic", "brokers": list(brokers)}
    return _rebalance(context, "drain", rebalance_name(context.name, "drain", brokers), spec)


def fill(context: Context, brokers: Sequence[BrokerId]) -> Manifest:
    automatic = context.cluster.auto_rebalance == "Automatic"
    approval = "Automatic" if automatic else "Manual"
    spec = {"mode": "AddBrokers", "approval": approval, "brokers": list(brokers)}
    return _rebalance(context, "fill", rebalance_name(context.name, "fill", brokers), spec)


def even(context: Context, wish: EvenLoadWish) -> Manifest:
    """Build the Rebalance that balances measured load. It keeps its name: there is one at a
    time."""
    percent = dict.fromkeys(("diskPercent", "bytesInPercent", "bytesOutPercent"), wish.allowed)
    approval = "Automatic" if wish.mode == "Automatic" else "Manual"
    spec = {"mode": "Load", "approval": approval, "goals": percent}
    return _rebalance(context, "even", f"{context.name}-even", spec)


def _rebalance(context: Context, purpose: Purpose, name: str, spec: Manifest) -> Manifest:
    metadata = context.metadata(name, "rebalance")
    metadata["labels"] |= {PURPOSE: purpose}
    return REBALANCES.manifest(metadata, spec={"clusterRef": {"name": context.name}, **spec})
