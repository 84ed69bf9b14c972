"""The order in which the pools of a LogCluster roll: `LogCluster.spec.rollout`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_core.errors import Reason, Refusal
from plimsoll_operator.api.durations import Duration
from plimsoll_operator.api.meta import Api, Name, Short, described
from plimsoll_operator.api.pools import Pool

RolloutApproval = Literal["Automatic", "Manual"]


class Rollout(Api, frozen=True, kw_only=True):
    """Pools roll one after another: each once the brokers of the earlier pools run their new
    revision and are in sync. Unset: all pools roll together."""

    order: Annotated[
        tuple[Name, ...],
        Meta(
            min_length=1,
            max_length=16,
            description=(
                "The pools that roll first, in this order. The others follow in the order of "
                "spec.pools."
            ),
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ]
    pause_after_first: Annotated[
        Duration | None,
        described(
            "How long the pods of the first pool must have been ready before the next pool rolls, "
            "such as 30m. Unset: no pause."
        ),
    ] = None
    approval: Annotated[
        RolloutApproval | None,
        described(
            "Automatic (default): the next pool rolls by itself after the pause. Manual: only the "
            "first pool rolls before approved names the rollout."
        ),
    ] = None
    approved: Annotated[
        Short | None,
        described("With approval Manual: the value of status.rollout.revision to carry out."),
    ] = None

    @property
    def manual(self) -> bool:
        return self.approval == "Manual"

    def sorted_pools(self, pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
        """Return the pools in the order in which they roll."""
        place = {name: at for at, name in enumerate(self.order)}
        return tuple(sorted(pools, key=lambda pool: place.get(pool.name, len(place))))


ROLLOUT_RULES = (
    (
        "!has(self.rollout) || has(self.pools)",
        "rollout states the order of pools, so it is allowed only with spec.pools.",
    ),
    (
        "!has(self.rollout) || !has(self.pools) || "
        "self.rollout.order.all(n, self.pools.exists(p, p.name == n))",
        "rollout.order must name only pools of spec.pools.",
    ),
    (
        "!has(self.rollout) || !has(self.rollout.pauseAfterFirst) || "
        "!has(self.rollout.approval) || self.rollout.approval != 'Manual'",
        "rollout.pauseAfterFirst is allowed only with approval Automatic: with Manual the rollout "
        "waits for you.",
    ),
)
"""Rules of the CRD about `spec.rollout`."""


def refusal_of(rollout: Rollout | None, pools: tuple[Pool, ...]) -> Refusal | None:
    """Return a refusal if the rollout breaks a rule that an API server without CEL does not
    check."""
    if rollout is None:
        return None
    if not pools:
        return _refused(
            "spec.rollout states the order of the pools of spec.pools, which is not set: set "
            "spec.pools, or remove spec.rollout."
        )
    known = {pool.name for pool in pools}
    if unknown := [name for name in rollout.order if name not in known]:
        return _refused(
            f"spec.rollout.order names {unknown[0]}, which is no pool of spec.pools: remove the "
            "name, or add the pool."
        )
    if rollout.manual and rollout.pause_after_first:
        return _refused(
            "spec.rollout.pauseAfterFirst is allowed only with approval Automatic: with Manual the "
            "rollout waits for you. Remove pauseAfterFirst, or set approval to Automatic."
        )
    return None


def _refused(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidConfig, message=message)
