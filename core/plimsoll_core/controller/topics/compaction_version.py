"""Whether the cluster's metadata version allows a topic to be compacted.

Called where configs of topics are checked.  Brokers of a release that knows no compaction would not
follow a log with holes: no topic becomes compacted before all of them are newer.  Source:
docs/protocol.md §10; `cluster.record_versions`.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.cluster.record_versions import release_of
from plimsoll_core.cluster.topic_configs import CLEANUP_POLICY, compacts
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal

SINCE = 2
"""The metadata version that introduced compacted topics."""


def check_version(turn: DecisionContext, configs: Mapping[str, str]) -> Refusal | None:
    if not compacts(configs) or turn.image.metadata_version >= SINCE:
        return None
    return Refusal(
        reason=Reason.InvalidConfig,
        message=(
            f"{CLEANUP_POLICY}={configs[CLEANUP_POLICY]} needs metadata version"
            f" {release_of(SINCE)}; finalise it in the LogCluster (spec.version) when all brokers"
            " run that release."
        ),
    )
