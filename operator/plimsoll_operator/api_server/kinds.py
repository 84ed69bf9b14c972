"""Kinds that the API server in memory serves: the built-in ones that the operator uses, and CRDs.

Each row states which general rules of a real API server hold for the kind. Source: the registries'
strategies of Kubernetes 1.34 (`AllowUnconditionalUpdate`, `PrepareForUpdate`, `ValidateUpdate`).
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import yaml

from plimsoll_operator.api.labels import VOLUME_PROTECTION
from plimsoll_operator.api_server import schema_validation
from plimsoll_operator.api_server.lists import BUILT_IN_TOPOLOGY, Topology, custom_topology
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.shipped_files import shipped_directory

GENERAL_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
FIELDS_OF_PODS = GENERAL_FIELDS | {
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
}
FIELDS_OF_EVENTS = GENERAL_FIELDS | {
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource:
    """One kind that the API server in memory serves, with the API rules that hold for its
    objects."""

    kind: Kind
    has_status: bool = False
    """True if the kind has the subresource `/status`: a write of the object leaves the status
    unchanged, and a write of the status leaves the rest unchanged."""
    has_generation: bool = False
    """True if `metadata.generation` grows by one with each change outside metadata and status."""
    needs_version: bool = False
    """True if an update without a resourceVersion is refused."""
    selectable: frozenset[str] = GENERAL_FIELDS
    """Fields that a request's field selector may name."""
    topology: Topology = BUILT_IN_TOPOLOGY
    """Rules for merging lists and maps in patches."""
    fixed: tuple[str, ...] = ()
    """Fields of the spec that no update may change."""
    spec_fixed_but: frozenset[str] | None = None
    """Fields of the spec that an update may change; None: an update may change all but `fixed`."""
    fixed_sentence: str = "field is immutable"
    """The message of the error for a changed immutable field."""
    finalizer: str | None = None
    """The finalizer that the server adds to every new object; None: no finalizer."""
    new_status: Object | None = None
    """The status that the server gives a new object; None: no status."""
    created_by_update: bool = False
    """True if a PUT of an absent object creates it."""
    schema: Object | None = None
    """The OpenAPI schema in the kind's CustomResourceDefinition; None for a built-in kind."""
    check: schema_validation.Check | None = None
    """The compiled schema: prunes, sets defaults and validates. None for a built-in kind, for which
    none of this happens."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Object, ...] = ()
    """Additional columns of `kubectl get`, as the CustomResourceDefinition states them."""

    @property
    def typed(self) -> bool:
        """Return True for a built-in kind. Items in a list of such a kind omit apiVersion and
        kind."""
        return self.check is None

    @cached_property
    def root(self) -> str:
        """Return the URL path of all objects of the kind, over all namespaces."""
        return self.kind.path()


_SETS_MAY_CHANGE = frozenset(
    {
        "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
    }
)  # fmt: skip
_SETS_SENTENCE = (
    "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', "
    "'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' "
    "and 'minReadySeconds' are forbidden"
)
_CLAIMS_SENTENCE = (
    "Forbidden: spec is immutable after creation except resources.requests and "
    "volumeAttributesClassName for bound claims"
)

BUILT_IN = (
    Resource(
        kind=resources.PODS,
        has_status=True,
        selectable=FIELDS_OF_PODS,
        new_status={"phase": "Pending"},
        short_names=("po",),
    ),
    Resource(kind=resources.CONFIG_MAPS, short_names=("cm",)),
    Resource(kind=resources.SECRETS, selectable=GENERAL_FIELDS | {"type"}),
    Resource(kind=resources.SERVICES, has_status=True, short_names=("svc",)),
    Resource(kind=resources.SERVICE_ACCOUNTS, short_names=("sa",)),
    Resource(
        kind=resources.VOLUME_CLAIMS,
        has_status=True,
        spec_fixed_but=frozenset({"resources", "volumeName", "volumeAttributesClassName"}),
        fixed_sentence=_CLAIMS_SENTENCE,
        finalizer=VOLUME_PROTECTION,
        new_status={"phase": "Pending"},
        short_names=("pvc",),
    ),
    Resource(
        kind=resources.NAMESPACES,
        has_status=True,
        new_status={"phase": "Active"},
        short_names=("ns",),
    ),
    Resource(kind=resources.NODES, has_status=True, short_names=("no",)),
    Resource(kind=resources.EVENTS, selectable=GENERAL_FIELDS, short_names=("ev",)),
    Resource(kind=resources.CORE_EVENTS, selectable=FIELDS_OF_EVENTS, short_names=("ev",)),
    Resource(
        kind=resources.STATEFUL_SETS,
        has_status=True,
        has_generation=True,
        spec_fixed_but=_SETS_MAY_CHANGE,
        fixed_sentence=_SETS_SENTENCE,
        new_status={"replicas": 0, "availableReplicas": 0},
        short_names=("sts",),
    ),
    Resource(
        kind=resources.DISRUPTION_BUDGETS,
        has_status=True,
        has_generation=True,
        short_names=("pdb",),
    ),
    Resource(kind=resources.NETWORK_POLICIES, has_generation=True, short_names=("netpol",)),
    Resource(kind=resources.LEASES, needs_version=True, created_by_update=True),
    Resource(
        kind=resources.JOBS,
        has_status=True,
        has_generation=True,
        fixed=("selector", "completionMode", "template"),
    ),
    Resource(kind=resources.ROLES),
    Resource(kind=resources.ROLE_BINDINGS),
    Resource(kind=resources.CRDS, has_status=True, has_generation=True, short_names=("crd",)),
)


def custom(definition: Object) -> Iterator[Resource]:
    """Return the resources that a CustomResourceDefinition declares, one per served version."""
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        schema = version["schema"]["openAPIV3Schema"]
        _, topology, check = _of_schema(schema)
        fields = {one["jsonPath"].lstrip(".") for one in version.get("selectableFields", ())}
        yield Resource(
            kind=Kind(
                api_version=f"{spec['group']}/{version['name']}",
                kind=names["kind"],
                plural=names["plural"],
                namespaced=spec["scope"] == "Namespaced",
            ),
            has_status="status" in (version.get("subresources") or {}),
            has_generation=True,
            needs_version=True,
            selectable=GENERAL_FIELDS | fields,
            topology=topology,
            schema=schema,
            check=check,
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            columns=tuple(version.get("additionalPrinterColumns", ())),
        )


_COMPILED_MAX = 100
_compiled: OrderedDict[int, tuple[Object, Topology, schema_validation.Check]] = OrderedDict()
"""Results of `_of_schema`, by the identity of the schema object. Several servers in one process
serve the same definitions."""


def _of_schema(schema: Object) -> tuple[Object, Topology, schema_validation.Check]:
    """Return the schema, its merge rules, and its compiled check, which leaves out apiVersion, kind
    and metadata. Results are cached by the schema's identity."""
    known = _compiled.get(id(schema))
    if known is not None:
        return known
    apart = ("apiVersion", "kind", "metadata")
    own = {name: part for name, part in schema["properties"].items() if name not in apart}
    check = schema_validation.compiled({**schema, "properties": own})
    _compiled[id(schema)] = known = (schema, custom_topology(schema), check)
    if len(_compiled) > _COMPILED_MAX:
        _compiled.popitem(last=False)
    return known


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def shipped() -> tuple[Object, ...]:
    """Return the product's CustomResourceDefinitions, sorted by file name. Callers share the cached
    objects and must not change them."""
    paths = sorted(shipped_directory("crds").glob("*.yaml"))
    return tuple(yaml.load(path.read_text(), Loader=_LOADER) for path in paths)
