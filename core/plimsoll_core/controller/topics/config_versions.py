"""Whether the cluster's metadata version allows what a topic's configs ask for.

Called where configs of topics are checked.  Brokers of a release that knows no compaction would not
follow a log with holes: no topic becomes compacted before all of them are newer.  Those that know
no codec of a topic would keep some batches as they were produced, and their controllers refuse
every other change of its configs; so do controllers that know no empty list of policies.
Source: docs/protocol.md §10; `cluster.record_versions`.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.cluster.record_versions import release_of
from plimsoll_core.cluster.topic_configs import (
    AS_PRODUCED,
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    compacts,
    keeps_everything,
)
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal

COMPACTED_SINCE = 2
"""The metadata version that introduced compacted topics."""
COMPRESSED_SINCE = 3
"""The one that introduced a codec for all batches of a topic."""
NO_POLICY_SINCE = 3
"""The one that introduced topics of which nothing is cleaned."""


def check_version(turn: DecisionContext, configs: Mapping[str, str]) -> Refusal | None:
    version = turn.image.metadata_version
    if compacts(configs) and version < COMPACTED_SINCE:
        return _too_old(CLEANUP_POLICY, configs, COMPACTED_SINCE)
    if configs.get(COMPRESSION_TYPE, AS_PRODUCED) != AS_PRODUCED and version < COMPRESSED_SINCE:
        return _too_old(COMPRESSION_TYPE, configs, COMPRESSED_SINCE)
    if keeps_everything(configs) and version < NO_POLICY_SINCE:
        return _too_old(CLEANUP_POLICY, configs, NO_POLICY_SINCE)
    return None


def _too_old(name: str, configs: Mapping[str, str], since: int) -> Refusal:
    return Refusal(
        reason=Reason.InvalidConfig,
        message=(
            f"{name}={configs[name]} needs metadata version {release_of(since)} (#{since});"
            " finalise it in the LogCluster (spec.version) when all brokers run that release."
        ),
    )
