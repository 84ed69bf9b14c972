"""Causes of a stalled LogCluster. Each component that can stall the LogCluster has a slot of its
own, and the conditions are computed from all slots.

A component sets and clears the cause of its own `StallSource` (`TermEffects.stall`, `unstall`) and
knows nothing of the others. `Stalled` shows the worst cause's reason and the sentences of all
causes, worst first. So a later cause does not hide an earlier one, and when the worst cause ends,
the next is shown at once. Pure; called by `ShownState.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition


class StallSource(Enum):
    """Components that can stall a LogCluster, worst first. The order: faults that stop every
    decision, faults that endanger committed data, brokers that are missing or behind, bugs of the
    operator, a spec that is not applied at all, and a spec that is applied in part."""

    # No operator leads the cluster, so no leader is elected and no change is committed.
    LEADERSHIP = auto()
    # The controller commits no changes to the metadata log.
    CONTROLLER = auto()
    # Objects of the metadata log are gone, so the next controller could not take over.
    METADATA_LOG = auto()
    # A replica's data is deleted as soon as its broker's pod ends.
    DELETED_VOLUMES = auto()
    # Topics will be deleted if a person confirms it; until then they are kept.
    ABSENT_TOPICS = auto()
    # Users will lose their logins if a person confirms it; until then they keep them.
    ABSENT_USERS = auto()
    # A broker cannot apply metadata, so it does not follow elections.
    BROKER_METADATA = auto()
    # A broker cannot register with the controller, so it serves no clients.
    RACKS = auto()
    # A bug keeps the operator from reconciling an object or from doing a task.
    BUG = auto()
    # The spec cannot be read, and an earlier spec stays in effect; the causes below concern the
    # earlier one.
    SPEC = auto()
    # The brokers' objects are not updated, and the brokers' configs differ from the spec.
    CONFIG = auto()
    # The brokers' objects are not updated, and the brokers run another release.
    VERSION = auto()
    # An object that the brokers need cannot be created or restored.
    CHILDREN = auto()
    # A listener is not open, or shows an earlier certificate; the others serve.
    LISTENERS = auto()
    # Internal connections have another TLS mode than the spec asks for.
    INSIDE = auto()
    # The operator's clock is wrong; the API server's is used for certificates.
    CLOCK = auto()
    # Brokers run another revision of their template than the spec asks for.
    RESTARTS = auto()
    # Volumes are smaller than the spec asks for; their data is safe.
    VOLUME_GROWTH = auto()
    # A maintenance window never opens: voluntary work waits for the others, or for ever.
    WINDOWS = auto()
    # Rights differ from the spec; brokers keep the previous ones.
    AUTHORIZATION = auto()
    # Token keys cannot be read from their issuer; brokers keep the previous ones.
    TOKENS = auto()
    # A client CA differs from the spec; brokers keep the previous one.
    CLIENT_CERTIFICATES = auto()
    # Quotas differ from the spec; brokers keep the previous ones.
    QUOTAS = auto()
    # The metadata version differs from the spec; the cluster works as before.
    METADATA_VERSION = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A fault that only a person can fix, with the reason and the message of a condition. `serves`:
    if False, the LogCluster is also not Ready. `waits`: True if the operator goes on by itself, so
    that the LogCluster is not Stalled."""

    reason: str
    message: str
    serves: bool = True
    waits: bool = False


StallCauses = dict[StallSource, Cause]


def stall_conditions(causes: Mapping[StallSource, Cause]) -> dict[str, Condition]:
    """Return the conditions that `causes` require, by type. `Stalled` is True if there is a cause
    that does not wait. `Ready` is False if a cause stops the service (`serves` is False). Return an
    empty dict without causes."""
    found = [causes[source] for source in StallSource if source in causes]
    shown = {}
    if fixed := [cause for cause in found if not cause.waits]:
        text = " ".join(cause.message for cause in fixed)
        shown["Stalled"] = condition("Stalled", True, fixed[0].reason, text)
    elif found:
        text = "No human action is needed. " + " ".join(cause.message for cause in found)
        shown["Stalled"] = condition("Stalled", False, found[0].reason, text)
    if out := [cause for cause in found if not cause.serves]:
        shown["Ready"] = condition("Ready", False, out[0].reason, out[0].message)
    return shown
