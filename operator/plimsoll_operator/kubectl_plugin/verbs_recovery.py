"""The verb `restore-metadata`: shows which history of the metadata would be restored and what is
given up with it, and confirms one.

The operator lists the histories in the LogCluster's status, and restores the one that an annotation
names. The verb writes that annotation, and nothing else.
"""

from __future__ import annotations

from rich.console import RenderableType

from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api.backup import is_point
from plimsoll_operator.api.labels import RESTORE_FROM_BACKUP, RESTORE_METADATA
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import Findings, Problem, heading, line, table, told
from plimsoll_operator.status.metadata_restored_condition import TYPE

SHOWN = (TYPE, "Stalled", "Ready")
"""The conditions that tell of a restore, the one that is shown first."""


async def restore_metadata(
    session: PluginSession, confirm: str | None, from_backup: str | None = None
) -> Findings:
    """Show what the operator restores by itself, or what it needs a person for and which histories
    that person may confirm; with `confirm`, confirm one of these; with `from_backup`, ask for a
    point of the backup instead. Raises `Problem` if the status offers no such history, the point is
    none, or the LogCluster cannot be written."""
    await session.refresh()
    if from_backup is not None:
        return await _ask_for(session, from_backup)
    offered = session.status.get("metadataRestore") or {}
    choices = list(offered.get("choices") or ())
    if confirm is not None:
        return await _confirm(session, choices, confirm)
    if not offered:
        return Findings(data={"choices": []}, parts=_nothing_to_confirm(session))
    parts: list[RenderableType] = [
        heading("The metadata log is not restored until a person chooses how"),
        *(line(f"- {doubt}") for doubt in offered.get("doubts") or ()),
    ]
    if not choices:
        parts.append(
            line(
                "No broker has sent a copy of the metadata that could be restored; start the "
                "brokers that are down.",
                bad=True,
            )
        )
    for one in choices:
        parts += _choice(session, one)
    return Findings(data=offered, parts=parts, code=1)


def _choice(session: PluginSession, one: Object) -> list[RenderableType]:
    in_backup = bool(one.get("fromBackup"))
    source = "the backup" if in_backup else "the brokers' copies"
    what = "Keep the log as it is" if one["keepsLog"] else f"Restore {source}"
    holders = one.get("heldBy") or ()
    held = "the backup alone" if in_backup else "no broker that answered"
    lost = one.get("givesUp") or ("nothing that is known",)
    rows = [
        ["ends at offset", one["endOffset"]],
        ["held by", brokers_text(holders) if holders else held],
        *(["gives up" if number == 0 else "", part] for number, part in enumerate(lost)),
    ]
    command = (
        f"kubectl plimsoll restore-metadata -n {session.namespace} "
        f"-c {session.cluster.metadata.name} --confirm {one['value']}"
    )
    return [heading(what), table(("what", "value"), rows), line(f"To confirm: {command}")]


def _nothing_to_confirm(session: PluginSession) -> list[RenderableType]:
    known = {one["type"]: one for one in session.status.get("conditions") or ()}
    parts: list[RenderableType] = [
        line("No restore of the metadata log waits for a decision, so there is nothing to confirm.")
    ]
    rows = [
        [type_, known[type_]["status"], known[type_]["reason"], known[type_]["message"]]
        for type_ in SHOWN
        if type_ in known
    ]
    if rows:
        parts.append(table(("condition", "status", "reason", "message"), rows))
    return parts


async def _confirm(session: PluginSession, choices: list[Object], confirm: str) -> Findings:
    chosen = next((one for one in choices if one["value"] == confirm), None)
    if chosen is None:
        offered = ", ".join(one["value"] for one in choices) or "none"
        raise Problem(
            f"{confirm} names no restore that the operator offers now (it offers: {offered}). "
            "Another broker may have answered meanwhile; run the command without --confirm to see "
            "what is offered."
        )
    await _annotate(session, RESTORE_METADATA, confirm)
    text = (
        f"The restore {confirm} of the metadata log is confirmed. The operator carries it out "
        "within seconds, and the LogCluster then shows the condition MetadataRestored."
    )
    return Findings(data={"confirmed": confirm, "choice": chosen}, parts=[line(text)])


async def _ask_for(session: PluginSession, point: str) -> Findings:
    if not is_point(point):
        raise Problem(
            f"{point} does not name a point of the backup: state newest, a time such as "
            "2026-11-30T09:00:00Z, or a metadata offset."
        )
    await _annotate(session, RESTORE_FROM_BACKUP, point)
    text = (
        f"The operator is asked to offer a restore of the metadata log from the backup, up to "
        f"{point}. It does so only if the metadata log is lost; run the command again without "
        "options to see the result."
    )
    return Findings(data={"fromBackup": point}, parts=[line(text)])


async def _annotate(session: PluginSession, annotation: str, value: str) -> None:
    namespace, name = session.cluster.key
    patch = {"metadata": {"annotations": {annotation: value}}}
    try:
        await session.kube.merge(LOG_CLUSTERS, namespace, name, patch)
    except ApiError as error:
        raise Problem(f"Cannot write the annotation of the LogCluster: {told(error)}") from error
