"""Checks an installed release: its kinds are served and an operator is Ready. Pure.

Called for `helm test`, after the installation.
"""

from __future__ import annotations

from plimsoll_operator.kube.resources import METADATA_BATCHES, METADATA_SNAPSHOTS, WATCHED_KINDS
from plimsoll_operator.preflight.facts import NotRead, OperatorPods, Verdict
from plimsoll_operator.preflight.unread_facts import unread

KINDS = "kinds-served"
OPERATOR = "operator-ready"
WANTED = frozenset(
    (kind.api_version, kind.plural)
    for kind in (*WATCHED_KINDS, METADATA_BATCHES, METADATA_SNAPSHOTS)
)


def kinds(found: frozenset[tuple[str, str]] | NotRead) -> Verdict:
    """`found`: (API version, plural) of everything that is served in our API groups."""
    if isinstance(found, NotRead):
        return unread(KINDS, found)
    missing = sorted(f"{plural} ({version})" for version, plural in WANTED - found)
    if missing:
        text = f"The API server does not serve {', '.join(missing)}: apply the CRDs of this release"
        return Verdict(check=KINDS, result="failed", message=f"{text} (crds.enabled, or crds/).")
    return Verdict(check=KINDS, result="ok", message=f"All {len(WANTED)} kinds are served.")


def operator(found: tuple[OperatorPods, ...] | NotRead, namespace: str) -> Verdict:
    """`found`: the operator's Deployments in the release's namespace."""
    if isinstance(found, NotRead):
        return unread(OPERATOR, found)
    if not found:
        text = f"No operator found in namespace {namespace}: install the chart there."
        return Verdict(check=OPERATOR, result="failed", message=text)
    told = ", ".join(f"{one.name}: {one.ready} of {one.wanted} Ready" for one in found)
    if all(one.ready >= one.wanted > 0 for one in found):
        return Verdict(check=OPERATOR, result="ok", message=f"{told}.")
    nobody = any(one.ready == 0 for one in found)
    text = f"{told}. Inspect the pods: kubectl describe pods -n {namespace}."
    return Verdict(check=OPERATOR, result="failed" if nobody else "warning", message=text)
