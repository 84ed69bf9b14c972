"""The condition MetadataRestored of a LogCluster: its metadata log was restored from the brokers'
copies, or a backup. Shown for a week, also by later terms: `still_shown` finds it in the status.

The reason says if the restored history was certain or a person had to confirm it.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_operator.api.conditions import condition, milliseconds
from plimsoll_operator.api.labels import RESTORE_METADATA
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.controller.metadata_restoration import source_text
from plimsoll_operator.controller.restore_decision import Restore
from plimsoll_operator.kube.seen_objects import Key

TYPE = "MetadataRestored"
SHOWN_MS = 7 * 86_400_000


def restored_condition(restore: Restore) -> Condition:
    """Return the condition for a history that was just restored."""
    text = (
        f"The metadata log had lost records. It was restored up to offset "
        f"{restore.image.next_offset} (digest {restore.choice.partition('-')[2]}) from "
        f"{source_text(restore)}."
    )
    if restore.confirmed:
        text += (
            " A person confirmed it although newer decisions may be missing: compare topics, users "
            "and partitions with what you expect."
        )
        return condition(TYPE, True, "Confirmed", text)
    return condition(TYPE, True, "Certain", f"{text} No decision that a broker applied is missing.")


def still_shown(conditions: Iterable[Condition], now_ms: int) -> Condition | None:
    """Return the condition that the status shows, or None if it shows none or one that is older
    than a week."""
    for one in conditions:
        if one.type == TYPE and one.status == "True":
            try:
                since_ms = milliseconds(one.last_transition_time)
            except ValueError:
                since_ms = now_ms
            return one if now_ms < since_ms + SHOWN_MS else None
    return None


def way_out(key: Key, choice: str) -> str:
    """Return a sentence with the command that confirms the history `choice`; empty without one."""
    if not choice:
        return ""
    return (
        f" If you accept that, restore it by the annotation {RESTORE_METADATA}: {choice} (kubectl "
        f"annotate --overwrite logcluster {key[1]} -n {key[0]} {RESTORE_METADATA}={choice})."
    )
