"""Rebalance objects that the operator creates itself: a drain, which empties leaving brokers, a
fill, which moves replicas to new ones, and one that balances measured load.

They work like any Rebalance. This module creates them once, recreates them if they fail, deletes
them if the spec no longer wants them (which rolls back moves in progress), and prunes old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import SettleNewcomers
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import REBALANCES
from plimsoll_operator.manifests import rebalance
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.reconcile.reconcile_term import Term

KEPT_MAX = 10
"""Number of ended drains and fills that are kept for users to read."""
AGAIN_MS = 60_000
"""Delay before a failed drain is recreated, in milliseconds."""
SOON_MS = 10_000
"""Delay in milliseconds before a drain is recreated that ended without emptying its brokers,
because other moves were in progress on their partitions."""
TRIES = 5
"""Number of attempts to delete a fill while other writers change its status."""
FINAL = frozenset({"Completed", "Cancelled", "Failed", "NothingToDo"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A Rebalance of the operator's own as last read. `purpose`: "drain", "fill" or "even".
    `phase`: the committed phase if the object has ended, else the one in its status. `going`: True
    if it is being deleted. `untouched`: True if it was not edited since its creation."""

    name: str
    uid: str
    purpose: str
    brokers: frozenset[int]
    phase: str
    message: str
    made_ms: int
    going: bool
    untouched: bool

    @property
    def final(self) -> bool:
        return self.phase in FINAL


async def reconcile(term: Term, context: Context) -> list[BlockedAction]:
    """Create, replace and delete drains and fills as the committed members require. Return the rows
    of `status.blocked` that say what drains wait for."""
    made = await _read(term, context)
    rows = await _drain(term, context, [m for m in made if m.purpose == "drain"])
    await _fill(term, context, [m for m in made if m.purpose == "fill"])
    ended = sorted((m for m in made if m.final and not m.going), key=lambda m: -m.made_ms)
    for old in ended[KEPT_MAX:]:
        await _delete(term, old)
    return rows


def _own_labels(context: Context) -> dict[str, str]:
    short = labels.short_id(context.cluster_id)
    return {labels.CLUSTER: context.name, labels.CLUSTER_ID: short}


async def _read(term: Term, context: Context) -> list[Made]:
    selector = ",".join(f"{key}={value}" for key, value in _own_labels(context).items())
    try:
        found = await term.kube.list(REBALANCES, context.namespace, label_selector=selector)
    except NotFound:  # the CRD is not installed
        return []
    return [_made(term.image, item) for item in found.items if _purpose(item)]


def _purpose(item: Object) -> str | None:
    found = (item["metadata"].get("labels") or {}).get(labels.PURPOSE)
    return str(found) if found else None


def _made(image: ClusterImage, item: Object) -> Made:
    meta, status = item["metadata"], item.get("status") or {}
    row = image.rebalances.get(meta["uid"])
    conditions = status.get("conditions") or ()
    why = [c["message"] for c in conditions if _says_why(c)]
    made = meta.get("creationTimestamp")
    return Made(
        name=meta["name"],
        uid=meta["uid"],
        purpose=_purpose(item) or "",
        brokers=frozenset(item["spec"].get("brokers") or ()),
        # Waiting, and its cause, are not committed.
        phase=row.phase if row and row.phase in FINAL else str(status.get("phase") or ""),
        message=(row.message if row else "") or next(iter(why), ""),
        made_ms=milliseconds(made) if made else 0,
        going=bool(meta.get("deletionTimestamp")),
        untouched=meta.get("generation", 1) == 1,
    )


def _says_why(shown: Object) -> bool:
    return shown["type"] in ("Blocked", "Failed") and shown.get("status") == "True"


# --- brokers that leave ---------------------------------------------------------------------------


async def _drain(term: Term, context: Context, made: list[Made]) -> list[BlockedAction]:
    image = term.image
    stay = frozenset(image.members) - frozenset(image.leaving)
    full = [b for b in image.leaving if image.hosted.get(b)]
    covered: set[int] = set()
    rows: list[BlockedAction] = []
    for one in made:
        busy = sorted(one.brokers.intersection(full))
        if one.going:
            covered |= one.brokers  # wait until it is deleted
        elif _is_over(one, stay, busy, term.server_ms()):
            await _delete(term, one)
            covered |= one.brokers
        elif busy:
            covered |= one.brokers
            rows += _waits(term, one, busy)
    missing = [b for b in full if b not in covered]
    if missing:
        await _create(term, context, rebalance.drain(context, missing))
    return rows


def _is_over(one: Made, stay: frozenset[BrokerId], busy: Sequence[int], now_ms: int) -> bool:
    """Return True if the drain must be deleted: the spec wants to keep one of its brokers, or it
    ended some time ago without emptying all (`busy`: those of its brokers that still have
    replicas)."""
    if not one.final:
        return not one.brokers.isdisjoint(stay)
    if not busy or one.phase == "Cancelled":
        return False
    return now_ms - one.made_ms >= (AGAIN_MS if one.phase == "Failed" else SOON_MS)


def _waits(term: Term, one: Made, busy: Sequence[int]) -> Iterator[BlockedAction]:
    if one.phase == "Cancelled":
        reason = "RebalanceCancelled"
        until = (
            f"Rebalance {one.name}, which moves the replicas away from brokers that leave, was "
            "cancelled. To continue, delete it; the operator then makes a new one. To keep the "
            "brokers, raise their count or remove their exclusion."
        )
    elif one.phase == "Failed" or (one.phase == "Blocked" and one.message):
        reason, until = f"Rebalance{one.phase}", f"Rebalance {one.name}: {one.message}"
    elif one.phase == "Paused":
        reason, until = (
            "RebalancePaused",
            f"Rebalance {one.name} is paused; set paused to false to continue.",
        )
    else:
        return
    for broker in busy:
        yield blocked(term, BrokerId(broker), reason, until)


def blocked(
    term: Term,
    broker_id: BrokerId,
    reason: str,
    until: str,
    action: Literal["Drain", "Start"] = "Drain",
) -> BlockedAction:
    """Return a row of `status.blocked` that says that `action` on broker `broker_id` has waited
    since now. `until`: the condition it waits for."""
    return BlockedAction(
        action=action,
        broker=broker_id,
        reason=reason,
        until=until[:1024],
        since=timestamp(term.now_ms()),
    )


# --- brokers that joined --------------------------------------------------------------------------


async def _fill(term: Term, context: Context, made: list[Made]) -> None:
    image = term.image
    stay = set(image.members) - set(image.leaving)
    for one in made:
        # A fill of a leaving broker would delay its drain, which evens out the others anyway.
        if not one.final and not one.going and not one.brokers <= stay:
            await _delete(term, one)
    newcomers = image.newcomers
    if not newcomers or not all(b in image.brokers and image.brokers[b].active for b in newcomers):
        return
    # A drain evens out what remains, so nothing is left to fill after it.
    wanted = context.cluster.auto_rebalance != "Off" and image.partitions and not image.leaving
    if wanted:
        # A plan evens out all brokers, whichever it fills: two would propose the same.
        earlier = [one for one in made if _is_open(one, image)]
        others = {BrokerId(b) for one in earlier for b in one.brokers}
        brokers = tuple(sorted({*newcomers, *others}))
        name = rebalance.rebalance_name(context.name, "fill", brokers)
        names = (name, rebalance.other_name(context, name))
        known = next((one for one in made if one.name in names), None)
        if known is not None and (known.going or known.final):
            if not known.going:
                await _delete(term, known)
            return
        if known is None and not await _create(term, context, rebalance.fill(context, brokers)):
            return
        for one in earlier:
            if one.name not in names:
                await _replaced(term, one)
    await term.ask(SettleNewcomers(broker_ids=newcomers))


def _is_open(one: Made, image: ClusterImage) -> bool:
    """Return True if the fill may still be replaced by another one: it has not been approved,
    edited or begun."""
    stays = not one.final and not one.going and one.brokers <= set(image.members)
    return stays and one.untouched and one.uid not in image.rebalances


# --- brokers that are loaded unevenly -------------------------------------------------------------


async def create_even(term: Term, context: Context, manifest: Manifest) -> bool:
    """Create the Rebalance of mode Load, in place of an ended one, and return True. Return False if
    one has not ended, or the ended one is being deleted."""
    for one in await _read(term, context):
        if one.purpose == "even":
            if one.final and not one.going:
                await _delete(term, one)
            return False
    return await _create(term, context, manifest)


# --- objects --------------------------------------------------------------------------------------


async def _create(term: Term, context: Context, manifest: Manifest) -> bool:
    """Create a drain or fill. If an object of another owner has its name, use another name. Return
    False if one of this cluster has the name already; the next pass reads it."""
    if await _made_now(term, manifest):
        return True
    metadata = manifest["metadata"]
    try:
        there = await term.kube.get(REBALANCES, term.key[0], metadata["name"])
    except NotFound:
        return False
    if _own_labels(context).items() <= (there["metadata"].get("labels") or {}).items():
        return False
    name = rebalance.other_name(context, metadata["name"])
    return await _made_now(term, {**manifest, "metadata": {**metadata, "name": name}})


async def _made_now(term: Term, manifest: Manifest) -> bool:
    """Create the object and return True. Return False if its name is taken."""
    try:
        await term.kube.create(REBALANCES, manifest)
    except Conflict:
        return False
    return True


async def _replaced(term: Term, one: Made) -> None:
    """Delete a fill that another one replaces, unless it has been approved since it was read."""
    for _ in range(TRIES):
        try:
            item = await term.kube.get(REBALANCES, term.key[0], one.name)
            now = _made(term.image, item)
            if now.uid != one.uid or not _is_open(now, term.image):
                return
            version = item["metadata"]["resourceVersion"]
            await term.kube.delete(REBALANCES, term.key[0], one.name, uid=one.uid, version=version)
        except NotFound:
            return
        except Conflict:  # perhaps only its status changed
            continue
        return


async def _delete(term: Term, one: Made) -> None:
    try:
        await term.kube.delete(REBALANCES, term.key[0], one.name, uid=one.uid)
    except (NotFound, Conflict):
        return
