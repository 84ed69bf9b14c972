"""A committed record on one line of a run's events."""

from __future__ import annotations

from plimsoll_core.cluster.records import Record


def short(record: Record) -> str:
    fields = {
        name: getattr(record, name)
        for name in record.__struct_fields__
        if name not in ("directory_ids", "endpoints", "incarnation_id", "pod_uid")
    }
    shown = ", ".join(f"{name}={value!r}" for name, value in fields.items() if value != "UNSET")
    return f"{type(record).__name__}({shown})"
