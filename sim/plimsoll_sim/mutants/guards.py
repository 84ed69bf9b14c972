"""The guards of the protocol's own list, each taken out alone."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

LEADER = "core/plimsoll_core/replica/leader.py"
JOINING = "core/plimsoll_core/replica/isr_membership.py"
COMMIT_RULE = "core/plimsoll_core/replica/commit.py"
REPLICA = "core/plimsoll_core/replica/replica.py"
DIVERGENCE = "core/plimsoll_core/replica/fetch_checks.py"
TRUNCATION = "core/plimsoll_core/replica/follower.py"
JUDGE = "core/plimsoll_core/controller/partitions/alter_partition.py"
REGISTRATION = "core/plimsoll_core/controller/brokers/registration.py"
RECOVERY = "core/plimsoll_core/controller/partitions/unclean_recovery.py"
LIFETIMES = "core/plimsoll_core/replica/replica_context.py"
FETCHER = "broker_image/plimsoll_broker/replication/fetcher.py"
FOLLOWING = "broker_image/plimsoll_broker/replication/follower_session.py"
LOG = "broker_image/plimsoll_broker/storage/log.py"
PRODUCE = "broker_image/plimsoll_broker/handlers/produce.py"

GUARDS: tuple[Mutant, ...] = (
    Mutant(
        name="join-below-term-start",
        rule="who joins the ISR holds everything up to where the leader's term began (4.5)",
        scenarios=("S05",),
        profile="heirs",
        edits=(Edit(JOINING, " or end < leader.start_offset:", ":"),),
    ),
    Mutant(
        name="join-below-high-watermark",
        rule="who joins the ISR holds everything up to the high watermark (4.5)",
        scenarios=("S05",),
        edits=(Edit(JOINING, " or end < high_watermark or end <", " or end <"),),
    ),
    Mutant(
        name="count-committed-isr",
        rule="the high watermark waits for the maximal ISR, not for the committed one (4.4)",
        scenarios=("S06",),
        edits=(
            Edit(LEADER, "for replica in state.maximal if", "for replica in state.committed if"),
        ),
    ),
    Mutant(
        name="commit-below-min-isr",
        rule="the high watermark is frozen while the ISR is below its minimum (4.4)",
        scenarios=("S07", "S10"),
        edits=(
            Edit(
                COMMIT_RULE,
                "    if len(leader.isr.committed) < leader.min_isr:\n        return None\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="remember-followers-over-terms",
        rule="a new term knows nothing of its followers until they fetch in it (4.2)",
        scenarios=("S13", "S25"),
        profile="turns",
        edits=(
            Edit(
                REPLICA,
                "            leader = Leader(self._around.broker_id, partition",
                "            known = self.leader\n"
                "            leader = Leader(self._around.broker_id, partition",
            ),
            Edit(
                REPLICA,
                "partition, end, now_ms)\n",
                "partition, end, now_ms)\n"
                "            if known is not None:\n"
                "                leader.followers.update(\n"
                "                    (r, f)\n"
                "                    for r, f in known.followers.items()\n"
                "                    if r in leader.followers\n"
                "                )\n"
                "                leader.set_isr(leader.isr)\n",
            ),
        ),
    ),
    Mutant(
        name="ineligible-members",
        rule="nobody joins an ISR who is fenced, shutting down or not registered (3.7.8)",
        scenarios=("S08",),
        profile="overtaken",
        edits=(
            Edit(
                JUDGE,
                "if broker is None or not case.turn.acceptable(member.broker_id):",
                "if broker is None:",
            ),
        ),
    ),
    Mutant(
        name="stale-partition-epoch",
        rule="a proposal is made against the present partition epoch (3.7.5)",
        scenarios=("S24", "S30"),
        profile="overtaken",
        edits=(
            Edit(
                JUDGE,
                "if case.proposal.partition_epoch == case.partition.partition_epoch:",
                "if True:",
            ),
        ),
    ),
    Mutant(
        name="stale-member",
        profile="overtaken",
        rule="a proposed member is in the lifetime in which it fetched (3.7.8)",
        scenarios=("S09",),
        edits=(
            Edit(JUDGE, "if member.broker_epoch not in (None, broker.broker_epoch):", "if False:"),
        ),
    ),
    Mutant(
        name="stale-fetch",
        rule="a fetch of an earlier lifetime proves nothing (4.7)",
        scenarios=("S09",),
        profile="other lives",
        edits=(Edit(LIFETIMES, "if broker_epoch < registered.broker_epoch:", "if False:"),),
    ),
    Mutant(
        name="any-marker-is-clean",
        rule="a stop was clean only when the marker names the registered epoch (3.1)",
        scenarios=("S26", "S27"),
        profile="outages",
        edits=(
            Edit(
                REGISTRATION,
                "and request.previous_broker_epoch == existing.broker_epoch",
                "and request.previous_broker_epoch is not None",
            ),
        ),
    ),
    Mutant(
        name="clean-stop-stays-in-isr",
        rule="also who stopped cleanly leaves its ISRs when it registers (3.1)",
        profile="other lives",
        scenarios=("S01",),
        edits=(
            Edit(
                REGISTRATION,
                "if not leave(turn, request.broker_id, how, lost=not clean):",
                "if not clean and not leave(turn, request.broker_id, how, lost=True):",
            ),
        ),
    ),
    Mutant(
        name="unclean-stop-stays-in-elr",
        rule="who stopped uncleanly leaves the ELR too (3.1)",
        scenarios=("S10", "S11"),
        profile="outages",
        edits=(Edit(REGISTRATION, "how, lost=not clean)", "how, lost=False)"),),
    ),
    Mutant(
        name="first-to-tell-leads",
        rule="a recovery waits for every member of the LastKnownELR (3.8)",
        scenarios=("S11",),
        profile="outages",
        edits=(
            Edit(
                RECOVERY,
                "return most_complete(logs) if len(logs) == len(members) else None",
                "return most_complete(logs)",
            ),
        ),
    ),
    Mutant(
        name="reply-to-another-question",
        rule="a reply counts only while its question would be asked the same way (4.8)",
        scenarios=("S17",),
        profile="turns",
        edits=(
            Edit(
                REPLICA,
                "            self.fetches_from == sender\n"
                "            and asked.leader_epoch == self.partition.leader_epoch\n"
                "            and asked.fetch_offset == self.log.log_end_offset\n",
                "            self.fetches_from == sender\n",
            ),
            Edit(
                FOLLOWING,
                "return self._followed.get(followed.key) is followed",
                "return followed.key in self._followed",
            ),
            Edit(
                FOLLOWING,
                "        self._resting.pop(key, None)\n        self._forget(key)\n",
                "        self._resting.pop(key, None)\n",
            ),
            Edit(
                FETCHER,
                "            self._connection.close()\n\n    @property\n    def lost_for_ms",
                "            pass\n\n    @property\n    def lost_for_ms",
            ),
        ),
    ),
    Mutant(
        name="no-divergence",
        rule="a follower whose last term ended elsewhere is told so (4.7)",
        scenarios=("S02", "S03"),
        edits=(
            Edit(
                DIVERGENCE,
                "if last_fetched_epoch is not None and last_fetched_epoch != log.epochs.latest:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="cut-to-the-leaders-offset",
        rule="a diverging follower also looks where its own terms end (4.8)",
        scenarios=("S03",),
        profile="two terms",
        edits=(
            Edit(
                TRUNCATION,
                "        return min(leader_end.end_offset, end)\n    if mine[0] ==",
                "        return min(leader_end.end_offset, end)\n"
                "    return min(leader_end.end_offset, end)\n    if mine[0] ==",
            ),
        ),
    ),
    Mutant(
        name="producers-remember-the-cut",
        rule="a cut log forgets the producers' cut batches (4.8)",
        scenarios=("S20",),
        edits=(
            Edit(
                LOG,
                "(above=end - 1)\n"
                "        self._snapshots.rebuild(self.producers, self.segments, end)\n",
                "(above=end - 1)\n",
            ),
        ),
    ),
    Mutant(
        name="duplicate-is-acknowledged",
        rule="also a retry is acknowledged only once it is committed (4.12)",
        scenarios=("S19",),
        profile="waits",
        edits=(
            Edit(
                PRODUCE,
                "return result, _required(hosted, last_offset + 1, request.acks)",
                "return result, None",
            ),
        ),
    ),
)
