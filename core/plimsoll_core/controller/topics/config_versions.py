"""Checks a topic's configs against the cluster's metadata version.

Called where configs of topics are checked.  Brokers of a release without compaction would not
follow a log with gaps: no topic becomes compacted before all of them are newer.  Brokers that do
not know a topic's codec would keep some batches as they were produced, and their controllers refuse
every other change of its configs; so do controllers that do not know an empty list of policies.
Source: docs/protocol.md §10; `cluster.record_versions`.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.cluster.topic_configs import (
    AS_PRODUCED,
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    compacts,
    keeps_everything,
)
from plimsoll_core.controller.kernel.decision import DecisionContext, too_old
from plimsoll_core.errors import Refusal

COMPACTED_SINCE = 2
"""The metadata version that introduced compacted topics."""
COMPRESSED_SINCE = 3
"""The metadata version that introduced one codec for all batches of a topic
(`compression.type`)."""
NO_POLICY_SINCE = 3
"""The metadata version that introduced topics with an empty `cleanup.policy`."""


def check_version(turn: DecisionContext, configs: Mapping[str, str]) -> Refusal | None:
    refusal = None
    if compacts(configs):
        refusal = _too_old(turn, CLEANUP_POLICY, configs, COMPACTED_SINCE)
    if configs.get(COMPRESSION_TYPE, AS_PRODUCED) != AS_PRODUCED:
        refusal = refusal or _too_old(turn, COMPRESSION_TYPE, configs, COMPRESSED_SINCE)
    if keeps_everything(configs):
        refusal = refusal or _too_old(turn, CLEANUP_POLICY, configs, NO_POLICY_SINCE)
    return refusal


def _too_old(
    turn: DecisionContext, name: str, configs: Mapping[str, str], since: int
) -> Refusal | None:
    return too_old(turn, since, f"{name}={configs[name]} needs")
