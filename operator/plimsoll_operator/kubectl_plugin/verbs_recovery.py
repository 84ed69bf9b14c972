"""The verb `restore-metadata`: shows which history of the metadata would be restored and what is
given up with it, and confirms one.

The operator lists the histories in the LogCluster's status, and restores the one that an annotation
names. The verb writes that annotation, and nothing else.
"""

from __future__ import annotations

from rich.console import RenderableType

from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api.labels import RESTORE_METADATA
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import Findings, Problem, heading, line, table, told
from plimsoll_operator.status.metadata_restored_condition import TYPE

SHOWN = (TYPE, "Stalled", "Ready")
"""The conditions that tell of a restore, the one that is shown first."""


async def restore_metadata(session: PluginSession, confirm: str | None) -> Findings:
    """Show what the operator restores by itself, or what it needs a person for and which histories
    that person may confirm; with `confirm`, confirm one of these. Raises `Problem` if the status
    offers no such history, or if the LogCluster cannot be written."""
    await session.refresh()
    offered = session.status.get("metadataRestore") or {}
    choices = list(offered.get("choices") or ())
    if confirm is not None:
        return await _confirm(session, choices, confirm)
    if not offered:
        return Findings(data={"choices": []}, parts=_nothing_to_confirm(session))
    parts: list[RenderableType] = [
        heading("The metadata log is not restored without a person"),
        *(line(f"- {doubt}") for doubt in offered.get("doubts") or ()),
    ]
    if not choices:
        parts.append(line("No broker has sent a copy that could be restored.", bad=True))
    for one in choices:
        parts += _choice(session, one)
    return Findings(data=offered, parts=parts, code=1)


def _choice(session: PluginSession, one: Object) -> list[RenderableType]:
    what = "Keep the log as it is" if one["keepsLog"] else "Restore the brokers' copies"
    holders = one.get("heldBy") or ()
    lost = one.get("givesUp") or ("nothing that is known",)
    rows = [
        ["ends at offset", one["endOffset"]],
        ["held by", brokers_text(holders) if holders else "no broker that answered"],
        *(["gives up" if number == 0 else "", part] for number, part in enumerate(lost)),
    ]
    command = (
        f"kubectl plimsoll restore-metadata -n {session.namespace} "
        f"-c {session.cluster.metadata.name} --confirm {one['value']}"
    )
    return [heading(what), table(("what", "value"), rows), line(f"To confirm: {command}")]


def _nothing_to_confirm(session: PluginSession) -> list[RenderableType]:
    known = {one["type"]: one for one in session.status.get("conditions") or ()}
    parts: list[RenderableType] = [line("There is nothing to confirm.")]
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
            f"The operator does not offer the history {confirm} (it offers: {offered}). Another "
            "broker may have answered meanwhile; run the command without --confirm."
        )
    namespace, name = session.cluster.key
    patch = {"metadata": {"annotations": {RESTORE_METADATA: confirm}}}
    try:
        await session.kube.merge(LOG_CLUSTERS, namespace, name, patch)
    except ApiError as error:
        raise Problem(f"Cannot confirm the history: {told(error)}") from error
    text = (
        f"Confirmed {confirm}. The operator restores it within seconds, and the LogCluster shows "
        "the condition MetadataRestored."
    )
    return Findings(data={"confirmed": confirm, "choice": chosen}, parts=[line(text)])
