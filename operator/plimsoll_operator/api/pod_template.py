"""Additions of a LogCluster's owner to its brokers' pods, and the names that they must not use.

`refusal_of` is pure; `broker_configs.spec_refusal` calls it for the template of each pool. Fields
that Kubernetes itself checks are passed on unchecked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from msgspec import Meta

from plimsoll_core.errors import Reason, Refusal
from plimsoll_operator.api.meta import Api, Labels, Passed, Short, described

PassedList = Annotated[tuple[Passed, ...], Meta(max_length=32)]

BROKER_CONTAINER = "broker"
OWN_ENV = "PLIMSOLL_"
OWN_VOLUMES = ("config", "data", "tls", "tmp")
OWN_DIRECTORIES = ("/etc/plimsoll", "/etc/plimsoll-tls", "/tmp", "/var/lib/plimsoll")
"""Paths at which the operator mounts volumes into a broker's container."""
GRACE_SECONDS = 40
"""A controlled shutdown gives up after 20 s in all; then files are closed and synced."""


class AddedMetadata(Api, frozen=True, kw_only=True):
    """Labels and annotations. Those that the operator itself sets win."""

    labels: Labels | None = None
    annotations: Labels | None = None


class PodTemplateSpec(Api, frozen=True, kw_only=True):
    """Scheduling of the broker pods, and additions to them."""

    node_selector: Labels | None = None
    tolerations: PassedList | None = None
    affinity: Passed | None = None
    topology_spread_constraints: PassedList | None = None
    priority_class_name: Short | None = None
    runtime_class_name: Short | None = None
    termination_grace_period_seconds: Annotated[
        Annotated[int, Meta(ge=GRACE_SECONDS, le=3600)] | None,
        described(f"Seconds after which a stopping pod is killed; default {GRACE_SECONDS}."),
    ] = None
    env: Annotated[
        PassedList | None,
        described(f"Environment of the broker's container; names with {OWN_ENV} are refused."),
    ] = None
    volumes: Annotated[
        PassedList | None,
        described(f"More volumes; the names {', '.join(OWN_VOLUMES)} are refused."),
    ] = None
    volume_mounts: Annotated[
        PassedList | None,
        described("Mounts of `volumes` in the broker's container."),
    ] = None
    containers: Annotated[
        PassedList | None,
        described(
            "Sidecars. Without a securityContext they gain no privileges and have no capabilities."
        ),
    ] = None
    init_containers: Annotated[
        PassedList | None, described("Containers that run before the broker, in this order.")
    ] = None


class PodTemplate(Api, frozen=True, kw_only=True):
    """Additions to the pods of the brokers, and to their volume claims."""

    metadata: Annotated[
        AddedMetadata | None,
        described("Labels and annotations of the pods; the LogCluster's own are not copied."),
    ] = None
    spec: PodTemplateSpec | None = None
    volume_claim_metadata: Annotated[
        AddedMetadata | None,
        described(
            "Labels and annotations of the volume claims. One that is taken back stays on "
            "existing claims."
        ),
    ] = None


def refusal_of(template: PodTemplate | None, where: str) -> Refusal | None:
    """Return a refusal if the template uses a name or path that the operator uses itself, or mounts
    a volume that it does not declare. `where`: the template's path in the LogCluster."""
    spec = template.spec if template is not None else None
    if spec is None:
        return None
    for message in _faults(spec):
        return Refusal(reason=Reason.InvalidConfig, message=f"{where}.spec.{message}")
    return None


def _faults(spec: PodTemplateSpec) -> Iterator[str]:
    for name in _names(spec.env):
        if name.startswith(OWN_ENV):
            yield (
                f"env cannot set {name}: the operator sets the variables that begin with {OWN_ENV}."
            )
    for name in _names(spec.volumes):
        if name in OWN_VOLUMES:
            yield f"volumes cannot name a volume {name}: every broker has one. Choose another name."
    for field, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for name in _names(containers):
            if name == BROKER_CONTAINER:
                yield f"{field} cannot name a container {name}: it is the broker's own."
    yield from _mount_faults(spec)


def _mount_faults(spec: PodTemplateSpec) -> Iterator[str]:
    volumes = list(_names(spec.volumes))
    for mount in spec.volume_mounts or ():
        name, path = str(mount.get("name")), str(mount.get("mountPath"))
        if name not in volumes:
            yield f"volumeMounts names the volume {name}, which spec.volumes does not have."
        if _is_own(path):
            yield (
                f"volumeMounts cannot mount {name} at {path}: the broker's own files are there or "
                f"below. Choose a path outside {', '.join(OWN_DIRECTORIES)}."
            )


def _names(rows: Iterable[dict[str, Any]] | None) -> Iterator[str]:
    for row in rows or ():
        yield str(row.get("name"))


def _is_own(path: str) -> bool:
    """Return True if the path is a directory of the broker, is below one, or has one below it."""
    wanted = f"{path.rstrip('/')}/"
    own = [f"{one}/" for one in OWN_DIRECTORIES]
    return any(wanted.startswith(one) or one.startswith(wanted) for one in own)
