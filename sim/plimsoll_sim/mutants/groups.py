"""The guards of coordinators: what they may tell, when, and what they read back."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

SHARD = "broker_image/plimsoll_broker/coordinator/group_shard.py"
LOADER = "broker_image/plimsoll_broker/coordinator/loader.py"
STATE = "core/plimsoll_core/groups/state.py"
EFFECTS = "core/plimsoll_core/groups/classic/seats.py"
PHASES = "core/plimsoll_core/groups/classic/phases.py"
SEATS = "core/plimsoll_core/groups/classic/seats.py"
SYNC = "core/plimsoll_core/groups/classic/sync.py"
JOIN = "core/plimsoll_core/groups/classic/join.py"
COMMIT = "core/plimsoll_core/groups/offsets/commit.py"
EXPIRE = "core/plimsoll_core/groups/offsets/delete.py"
DEADLINES = "core/plimsoll_core/groups/classic/deadlines.py"
MEMBERS = "core/plimsoll_core/groups/members.py"
ROLES = "broker_image/plimsoll_broker/coordinator/roles.py"
RECORDS = "core/plimsoll_wire/coordinator_records.py"
RECORD_SETS = "core/plimsoll_wire/record_sets.py"
INTERNAL = "core/plimsoll_core/controller/topics/internal_topics.py"
PROFILE, EXPIRY = "groups", "expiry"

GROUPS: tuple[Mutant, ...] = (
    Mutant(
        name="one-takes-all",
        rule="a principal holds at most as much of a pool as stays free (security.md)",
        scenarios=("C20",),
        profile="shares",
        edits=(
            Edit(
                "core/plimsoll_core/quotas/fair_pool.py",
                "        return held <= left or held <= self.floor\n",
                "        return True\n",
            ),
        ),
    ),
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
        name="keeps-offsets-on-one-broker",
        rule="the topic of offsets gets more replicas when more brokers take part (5.8)",
        scenarios=("C14",),
        profile=PROFILE,
        by_chance=False,  # runs begin with all their brokers; C14 begins with one
        edits=(
            Edit(
                INTERNAL,
                "factor = max(wanted_replicas(stated, len(turn.receivers())),"
                " topic.replication_factor)",
                "factor = topic.replication_factor",
            ),
        ),
    ),
    Mutant(
        name="keeps-replicas-of-brokers-that-leave",
        rule="the topic of offsets gives up replicas that find no place when brokers leave (5.8)",
        scenarios=("C16",),
        profile=PROFILE,
        by_chance=False,  # runs of this profile remove no brokers
        edits=(
            Edit(
                INTERNAL,
                "lower = bool(turn.image.leaving) and",
                "lower = False and",
            ),
        ),
    ),
    Mutant(
        name="forgets-whose-offset-it-is",
        rule="an offset with a retention of its own is still its topic's after a load (5.8)",
        scenarios=("C17",),
        profile=PROFILE,
        by_chance=False,  # committers of random runs leave it to the cluster how long offsets stay
        edits=(
            Edit(
                RECORDS,
                "    if version == _OFFSET_WITH_EXPIRY:\n",
                "    if False:\n",
            ),
        ),
    ),
    Mutant(
        name="stamps-by-any-clock",
        rule="what is written while the clock is set back does not look old (5.8, 4.9)",
        scenarios=("C18", "S37l"),
        profile="expiry by wrong clocks",
        edits=(
            Edit(
                "broker_image/plimsoll_broker/replication/wall_clock.py",
                "        return wall_ms if reckoned_ms - wall_ms <= STEP_MS_MAX else reckoned_ms\n",
                "        return wall_ms\n",
            ),
        ),
    ),
    Mutant(
        name="tell-without-lease",
        rule="what a coordinator only remembers it tells under the lease (5.8)",
        scenarios=("C02",),
        profile=PROFILE,
        by_chance=False,  # 300 runs asked nobody who was cut off for longer than a lease
        edits=(
            Edit(
                SHARD,
                "return self.leads and self._manager.serving.holds(self.hosted)",
                "return self.leads",
            ),
        ),
    ),
    Mutant(
        name="tell-while-loading",
        rule="what is asked of a shard that loads is decided once all is read (5.8)",
        scenarios=("C19",),
        profile=PROFILE,
        by_chance=False,  # 341 runs asked nobody in the few milliseconds of a load
        edits=(
            Edit(
                SHARD,
                "if self.leads and (self.phase is ShardPhase.LOADING or self._held):",
                "if False:",
            ),
            Edit(
                SHARD,
                "        if self.phase is ShardPhase.ACTIVE and self.leads:",
                "        if self.leads:",
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
                "                reading.replay(record, offset)\n",
                "                shard.skip(offset) if value is None else "
                "reading.replay(record, offset)\n",
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
    Mutant(
        name="take-commits-of-any-generation",
        rule="a commit of a generation that is over is refused (5.8.1)",
        scenarios=("C06",),
        profile=PROFILE,
        edits=(
            Edit(
                COMMIT,
                "    if op.generation != group.generation:\n",
                "    if op.generation < 0:\n",
            ),
        ),
    ),
    Mutant(
        name="store-no-new-id",
        rule="a static member's new id is in the log before it hears of it (5.8.1)",
        scenarios=("C12",),
        profile=PROFILE,
        by_chance=False,  # who has the id that is not stored is fenced, and comes back
        edits=(
            Edit(
                JOIN,
                "        effects.records.append(generation_of(turn, group))\n"
                "        effects.reply(token, _current",
                "        effects.reply(token, _current",
            ),
        ),
    ),
    Mutant(
        name="wait-for-who-died",
        rule="a newcomer whose connection closes is waited for no longer (5.8.1)",
        scenarios=("C09",),
        profile=PROFILE,
        by_chance=False,  # it is let go of after five minutes, and a run waits for longer
        edits=(
            Edit(
                DEADLINES,
                "    if group is not None and member_id is not None and "
                "group.members[member_id].is_new:\n",
                "    if False:\n",
            ),
        ),
    ),
    Mutant(
        name="wait-for-no-id",
        rule="a rebalance waits for who was given an id, as long as its session (5.8.1)",
        scenarios=("C09",),
        profile=PROFILE,
        by_chance=False,  # it begins another rebalance when it comes, and nothing is wrong
        edits=(
            Edit(
                MEMBERS,
                "len(self.joins) == len(self._members) and not self.pending",
                "len(self.joins) == len(self._members)",
            ),
        ),
    ),
    Mutant(
        name="expire-what-members-use",
        rule="offsets that members may consume do not expire (5.8)",
        scenarios=("C08",),
        profile=EXPIRY,
        edits=(
            Edit(
                EXPIRE,
                "subscribed = _in_use(members, group.stored)",
                "subscribed: frozenset[str] | None = frozenset()",
            ),
        ),
    ),
    Mutant(
        name="expire-in-half-the-time",
        rule="an offset expires when it is as old as offsets are kept (5.8)",
        scenarios=("C08",),
        profile=EXPIRY,
        edits=(
            Edit(
                EXPIRE,
                "last_ms = now_ms - turn.settings.retention_ms",
                "last_ms = now_ms - turn.settings.retention_ms // 2",
            ),
        ),
    ),
    Mutant(
        name="forget-without-a-tombstone",
        rule="an offset that expires has a tombstone, so that no load brings it back (5.8)",
        scenarios=("C08",),
        profile=EXPIRY,
        edits=(
            Edit(
                EXPIRE,
                "    return CoordinatorOutcome(key=op.group_id, records=tuple(records))\n",
                "    for gone in records:\n"
                "        if isinstance(gone, OffsetForgotten):\n"
                "            group.offsets[gone.topic].pop(gone.partition)\n"
                "    return CoordinatorOutcome(key=op.group_id)\n",
            ),
        ),
    ),
    Mutant(
        name="shard-of-an-old-term",
        rule="another term of the same leader is another shard, which reads its log (5.8)",
        scenarios=("C15",),
        profile=PROFILE,
        by_chance=False,  # no script has a coordinator miss that it was replaced
        edits=(
            Edit(
                ROLES,
                "shard.hosted is hosted and shard.leader is leader:",
                "shard.hosted is hosted and (shard.leader is leader or "
                "None not in (leader, shard.leader)):",
            ),
        ),
    ),
    Mutant(
        name="load-no-batch-that-was-cleaned",
        rule="what a cleaner left of a batch is read back like any (5.8, 10.2)",
        scenarios=("C05",),
        profile=PROFILE,
        edits=(
            Edit(
                LOADER,
                "    if header.is_control:\n",
                "    if header.is_control or header.count <= header.last_offset_delta:\n",
            ),
        ),
    ),
    Mutant(
        name="count-records-for-places",
        rule="a record's place is its own also when others of its batch are gone (5.8, 10.2)",
        scenarios=("C05",),
        profile=PROFILE,
        edits=(Edit(RECORD_SETS, "yield base + delta,", "yield base + index,"),),
    ),
)
