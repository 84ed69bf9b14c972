"""The guards of coordinators: what they may tell, when, and what they read back."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

SHARD = "broker_image/plimsoll_broker/coordinator/group_shard.py"
LOADER = "broker_image/plimsoll_broker/coordinator/loader.py"
STATE = "core/plimsoll_core/groups/state.py"
EFFECTS = "core/plimsoll_core/groups/classic/effects.py"
PHASES = "core/plimsoll_core/groups/classic/phases.py"
SEATS = "core/plimsoll_core/groups/classic/seats.py"
SYNC = "core/plimsoll_core/groups/classic/sync.py"
JOIN = "core/plimsoll_core/groups/classic/join.py"
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
    Mutant(
        name="sync-before-commit",
        rule="nobody hears an assignment that is not committed (5.8.1)",
        scenarios=("C11",),
        profile=PROFILE,
        edits=(
            Edit(EFFECTS, "            replies=tuple(", "            at_once=tuple("),
            Edit(
                SYNC,
                "        effects.then = partial(GenerationStored,",
                "        told, waiting = dict(op.assignments), group.syncs\n"
                "        group.syncs = {}\n"
                "        for one, asker in waiting.items():\n"
                "            group.members[one].assignment = told.get(one, b'')\n"
                "            effects.reply(asker, _synced(group, group.members[one]))\n"
                "            prolong(turn, group, group.members[one])\n"
                "        effects.then = partial(GenerationStored,",
            ),
        ),
    ),
    Mutant(
        name="no-sessions-after-a-load",
        rule="the sessions of a loaded group's members begin anew (5.8.1)",
        scenarios=("C10",),
        profile=PROFILE,
        by_chance=False,  # a member that is gone for good is one of many that join again
        edits=(
            Edit(
                SEATS,
                "    for member in group.members.values():\n        prolong(turn, group, member)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="count-no-empty-generation",
        rule="a group that becomes empty counts a generation: no number has two members (5.8.1)",
        scenarios=("C10",),
        profile=PROFILE,
        edits=(
            Edit(
                PHASES,
                "    group.generation += 1\n",
                "    group.generation += bool(group.members)\n",
            ),
        ),
    ),
    Mutant(
        name="forget-instances",
        rule="a static member that comes back takes its own place, not another one (5.8.1)",
        scenarios=("C12",),
        profile=PROFILE,
        edits=(Edit(JOIN, "    elif holder is not None:\n", "    elif False:\n"),),
    ),
)
