"""What a LogCluster shows of a restore of its metadata log from the brokers'
copies, or a backup.

The condition MetadataRestored follows from the committed image, so each term shows it, for a week.
Its reason says if the restored history was certain or a person confirmed it. Before metadata
version 5 the image tells of no restore, and `still_shown` finds the condition in the status. While
nothing is restored without a person, `offers` lists what that person may confirm.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import RESTORE_SHOWN_MS, ClusterImage, HistoryRestored
from plimsoll_core.cluster.record_versions import RESTORES_SINCE
from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api.cluster_status import (
    CHOICES_MAX,
    GIVEN_UP_MAX,
    SENTENCE_MAX,
    MetadataChoice,
    MetadataRestoreStatus,
)
from plimsoll_operator.api.conditions import condition, milliseconds, timestamp
from plimsoll_operator.api.labels import RESTORE_METADATA
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.controller.restore_decision import Choice, NotRestored
from plimsoll_operator.kube.seen_objects import Key

TYPE = "MetadataRestored"
COMPARE = "compare topics, users and partitions with what you expect"


def restored_condition(row: HistoryRestored | None) -> Condition:
    """Return the condition for what the log tells of its restore; None: nothing more."""
    text = "The metadata log had lost records and was restored"
    if row is None or not row.digest:
        return condition(TYPE, True, "Restored", f"{text}; {COMPARE}.")
    copies = f"the copies of {brokers_text(row.from_brokers)}"
    source = "the backup" if row.from_backup else copies
    text = (
        f"{text} from {source} at {timestamp(row.at_ms)}, up to offset "
        f"{row.end_offset} (digest {row.digest})."
    )
    if row.dismissed:
        dropped = brokers_text(one.broker_id for one in row.dismissed)
        text += f" The other history in the copies of {dropped} was given up."
    if row.confirmed:
        text += f" A person confirmed it although newer changes may be missing: {COMPARE}."
        return condition(TYPE, True, "Confirmed", text)
    return condition(TYPE, True, "Certain", f"{text} No change that a broker applied is missing.")


def shown_condition(
    image: ClusterImage, conditions: Iterable[Condition], now_ms: int
) -> Condition | None:
    """Return the condition of the last restore, or None if there was none within a week."""
    if (row := image.restored) is not None:
        return restored_condition(row) if now_ms < row.at_ms + RESTORE_SHOWN_MS else None
    return None if image.metadata_version >= RESTORES_SINCE else still_shown(conditions, now_ms)


def still_shown(conditions: Iterable[Condition], now_ms: int) -> Condition | None:
    """Return the condition that the status shows, or None if it shows none or one that is older
    than a week."""
    for one in conditions:
        if one.type == TYPE and one.status == "True":
            try:
                since_ms = milliseconds(one.last_transition_time)
            except ValueError:
                since_ms = now_ms
            return one if now_ms < since_ms + RESTORE_SHOWN_MS else None
    return None


def offers(found: NotRestored | None) -> MetadataRestoreStatus | None:
    """Return why the log is not restored without a person, and what that person may confirm."""
    if found is None:
        return None
    return MetadataRestoreStatus(
        doubts=tuple(one[:SENTENCE_MAX] for one in found.doubts[:CHOICES_MAX])
        or (found.sentence[:SENTENCE_MAX],),
        choices=tuple(_choice(one) for one in found.choices[:CHOICES_MAX]),
    )


def _choice(one: Choice) -> MetadataChoice:
    return MetadataChoice(
        value=one.value,
        keeps_log=one.keeps_log,
        from_backup=one.from_backup or None,
        end_offset=int(one.end_offset),
        held_by=tuple(one.from_brokers),
        gives_up=tuple(part[:SENTENCE_MAX] for part in one.gives_up[:GIVEN_UP_MAX]),
    )


def way_out(key: Key, choice: str) -> str:
    """Return a sentence with the commands that show and confirm a history; empty if there is none
    to confirm."""
    if not choice:
        return ""
    namespace, name = key
    return (
        f" See what would be lost: kubectl plimsoll restore-metadata -n {namespace} -c {name}. To "
        f"accept it, add --confirm {choice} (or state the annotation {RESTORE_METADATA}: {choice} "
        "in its YAML)."
    )
