"""A Rebalance's whole plan, row by row, as a ConfigMap: it is too long for a status."""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.planner.rebalance import Planned
from plimsoll_operator.api import API_VERSION
from plimsoll_operator.api.labels import MANAGED_BY, OPERATOR, Manifest, derived_name
from plimsoll_operator.api.meta import ObjectMeta

FILE = "plan.csv"
BYTES_MAX = 900_000
"""Maximum size in bytes: an object of the API server has about a million."""


def config_map_name(rebalance: str) -> str:
    return derived_name(rebalance, "-plan")


def config_map(owner: ObjectMeta, image: ClusterImage, planned: Planned) -> Manifest:
    """Return the ConfigMap; the Rebalance owns it, so it is deleted with it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_map_name(owner.name),
            "namespace": owner.namespace,
            # The chart's admission policies allow the operator to write objects with this label.
            "labels": {MANAGED_BY: OPERATOR},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "Rebalance",
                    "name": owner.name,
                    "uid": owner.uid,
                }
            ],
        },
        "data": {"hash": planned.hash, FILE: _rows(image, planned)},
    }


def _rows(image: ClusterImage, planned: Planned) -> str:
    lines = ["topic,partition,before,after,bytes,wave"]
    size = len(lines[0])
    for number, move in enumerate(planned.moves):
        topic = image.topics.get(move.topic_id)
        name = str(move.topic_id) if topic is None else topic.name
        before, after = (" ".join(map(str, row)) for row in (move.before, move.after))
        line = f"{name},{move.index},{before},{after},{move.copied_bytes},{move.wave}"
        size += len(line) + 1
        if size > BYTES_MAX:
            lines.append(f"# and {len(planned.moves) - number} more")
            break
        lines.append(line)
    return "\n".join(lines) + "\n"
