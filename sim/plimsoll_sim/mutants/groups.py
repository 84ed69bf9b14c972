"""The guards of coordinators: what they may tell, when, and what they read back."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

SHARD = "broker_image/plimsoll_broker/coordinator/group_shard.py"
LOADER = "broker_image/plimsoll_broker/coordinator/loader.py"
STATE = "core/plimsoll_core/groups/state.py"
PROFILE = "groups"

GROUPS: tuple[Mutant, ...] = (
    Mutant(
        name="tell-before-commit",
        rule="an answer about a group waits until its last record is committed (5.8)",
        scenarios=("C03",),
        profile=PROFILE,
        edits=(
            Edit(
                SHARD,
                "        required = self.state.written_to(outcome.key)\n",
                "        required = 0\n",
            ),
        ),
    ),
    Mutant(
        name="tell-without-lease",
        rule="what a coordinator only remembers it tells under the lease (5.8)",
        scenarios=("C02",),
        profile=PROFILE,
        edits=(
            Edit(
                SHARD,
                "return self.leads and self._manager.serving.holds(self.hosted)",
                "return self.leads",
            ),
        ),
    ),
    Mutant(
        name="skip-tombstones-at-load",
        rule="a tombstone is read back like any record (5.8)",
        scenarios=("C01",),
        profile=PROFILE,
        edits=(
            Edit(
                LOADER,
                "                shard.replay(record, offset)\n",
                "                shard.skip(offset) if value is None else "
                "shard.replay(record, offset)\n",
            ),
        ),
    ),
    Mutant(
        name="forget-what-is-gone",
        rule="what is said of a group that is gone waits for its tombstone (5.8)",
        scenarios=("C04",),
        profile=PROFILE,
        edits=(
            Edit(
                STATE,
                "return self._gone.get(group_id, 0) if group is None",
                "return 0 if group is None",
            ),
        ),
    ),
)
