"""Guards that the protocol's list does not name, in the controller, brokers, disks and the log."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

CORE = "core/plimsoll_core/"
BROKER = "broker_image/plimsoll_broker/"
OPERATOR = "operator/plimsoll_operator/"
REPLICA = CORE + "replica/replica.py"
LOG = BROKER + "storage/log.py"
RECOVERY = BROKER + "storage/recovery.py"
RING = OPERATOR + "metalog/ring.py"

CONTROLLER: tuple[Mutant, ...] = (
    Mutant(
        name="answers-before-the-commit",
        rule="an answer leaves when everything queued at its decision is committed",
        scenarios=("R10",),
        profile="log",
        edits=(
            Edit(
                OPERATOR + "controller/commit_queue.py",
                "if needs == self.committed.next_offset:",
                "if True:",
            ),
        ),
    ),
    Mutant(
        name="forgets-the-elr",
        rule="a member of the ELR stays there until the ISR is large enough (3.0)",
        scenarios=("S38",),
        edits=(
            Edit(
                CORE + "controller/kernel/partition_change.py",
                "pool = {*before.elr, *before.isr}",
                "pool = {*before.isr}",
            ),
        ),
    ),
    Mutant(
        name="elects-who-leaves",
        rule="who is being fenced or registered is not elected by that very change (3.3)",
        scenarios=("S03",),
        edits=(
            Edit(
                CORE + "controller/brokers/fencing.py",
                "turn.change(wishes, cause, without=without)",
                "turn.change(wishes, cause)",
            ),
        ),
    ),
    Mutant(
        name="elects-the-fenced",
        rule="only who is unfenced and stays is elected (3.3)",
        scenarios=("S22",),
        edits=(
            Edit(
                CORE + "controller/kernel/partition_change.py",
                "if r is not None and ok(r)), None)",
                "if r is not None), None)",
            ),
        ),
    ),
    Mutant(
        name="same-term-for-another-leader",
        rule="another leader is another term (3.0)",
        scenarios=("S03",),
        edits=(
            Edit(
                CORE + "controller/kernel/partition_change.py",
                "new_term = p.leader != before.leader or not",
                "new_term = not",
            ),
        ),
    ),
    Mutant(
        name="ends-a-move-early",
        rule="a move ends when all that it adds is in sync (3.0)",
        profile="moves",
        scenarios=("S31",),
        edits=(
            Edit(
                CORE + "controller/kernel/partition_change.py",
                "    if not isr or not set(p.adding) <= set(isr):\n        return False\n",
                "    return bool(isr)\n",
            ),
        ),
    ),
    Mutant(
        name="cancels-whatever-is-lost",
        rule="a cancel does not drop who may hold what was acknowledged (3.10)",
        profile="cancels",
        scenarios=("S34",),
        edits=(
            Edit(
                CORE + "controller/moves/move_rollback.py",
                "if trusted and len(left) < p.effective_min_isr and not forced:",
                "if False:",
            ),
        ),
    ),
)

REPLICAS: tuple[Mutant, ...] = (
    Mutant(
        name="undecided-is-refused",
        rule="a proposal that was overtaken may have been committed: it stays pending (4.6)",
        scenarios=("S30",),
        profile="overtaken",
        edits=(
            Edit(
                CORE + "replica/isr_membership.py",
                "if answer.code == Code.INELIGIBLE_REPLICA:",
                "if True:",
            ),
        ),
    ),
    Mutant(
        name="reads-the-uncommitted",
        rule="a consumer sees nothing above the high watermark (5.4)",
        scenarios=("S10",),
        edits=(
            Edit(
                BROKER + "handlers/fetch_reading.py",
                "end = log.log_end_offset if for_follower else high_watermark",
                "end = log.log_end_offset",
            ),
        ),
    ),
    Mutant(
        name="tells-an-end-too-early",
        rule="a new leader knows its end once the last term is committed (5.5)",
        scenarios=("S41",),
        profile="heirs",
        edits=(
            Edit(
                CORE + "replica/commit.py",
                "    if high_watermark < leader.start_offset:\n"
                "        return Code.OFFSET_NOT_AVAILABLE\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="high-watermark-above-the-log",
        rule="a follower's high watermark stays within its log (4.8)",
        scenarios=("S37",),
        edits=(
            Edit(
                REPLICA,
                "max(min(high_watermark, log.log_end_offset), log.log_start_offset)",
                "max(high_watermark, log.log_start_offset)",
            ),
        ),
    ),
    Mutant(
        name="commits-what-it-finds",
        rule="a new leader's log end is not committed until the others have it (4.2)",
        scenarios=("S41",),
        edits=(
            Edit(
                REPLICA,
                "            leader = Leader(self._around.broker_id, partition",
                "            self.high_watermark = end\n"
                "            leader = Leader(self._around.broker_id, partition",
            ),
        ),
    ),
    Mutant(
        name="shrinks-before-the-commit",
        rule="who is to leave the ISR counts until that is committed (4.4)",
        scenarios=("S30",),
        edits=(
            Edit(
                CORE + "replica/leader.py",
                "    leaving: tuple[BrokerId, ...]\n"
                "    proposal: IsrProposal\n\n"
                "    @property\n"
                "    def maximal(self) -> tuple[BrokerId, ...]:\n"
                "        return self.committed\n",
                "    leaving: tuple[BrokerId, ...]\n"
                "    proposal: IsrProposal\n\n"
                "    @property\n"
                "    def maximal(self) -> tuple[BrokerId, ...]:\n"
                "        return tuple(r for r in self.committed if r not in self.leaving)\n",
            ),
        ),
    ),
    Mutant(
        name="acknowledges-at-once",
        rule="acks=all waits until all in sync have it (4.11)",
        scenarios=("S06",),
        edits=(
            Edit(
                BROKER + "handlers/produce.py",
                "required = _required(hosted, place.base_offset + header.last_offset_delta + 1, "
                "acks)",
                "required = None",
            ),
        ),
    ),
    Mutant(
        name="retries-are-written-again",
        rule="a retry of a batch that is there is not written again (4.12)",
        scenarios=("S19",),
        edits=(
            Edit(
                CORE + "replica/producer_states.py",
                "return Duplicate(known.last_offset - known.offset_delta, known.last_offset)",
                "return None",
            ),
        ),
    ),
    Mutant(
        name="overtakes-what-was-refused",
        rule="what was sent behind a refused batch is refused, too (4.12)",
        profile="cancels",
        scenarios=("S42",),
        edits=(Edit(BROKER + "server/rejected_sequences.py", "return lowest.code", "return None"),),
    ),
    Mutant(
        name="overtaking-is-out-of-order",
        rule="what overtakes is told why the first was refused, not that it is out of order (4.12)",
        scenarios=("S42",),
        edits=(Edit(BROKER + "server/rejected_sequences.py", "return lowest.code", "return 45"),),
    ),
    Mutant(
        name="the-log-judges-what-overtakes",
        rule="also a log that knows the producer is not asked about what overtakes (4.12)",
        profile="cancels",
        scenarios=("S42",),
        edits=(
            Edit(
                BROKER + "server/rejected_sequences.py",
                "if epoch < lowest.epoch:\n        return False\n",
                "return True\n",
            ),
        ),
    ),
    Mutant(
        name="forgets-what-was-cut-off",
        rule="nor does what was sent behind a batch that was appended and cut off again (4.12)",
        scenarios=("S42c",),
        by_chance=False,  # 340 runs had no batch stand in its connection for so long
        edits=(
            Edit(
                BROKER + "server/rejected_sequences.py",
                "return  # that entry holds back this batch, too\n        if code in _PASSES:",
                "return\n        if False:",
            ),
        ),
    ),
    Mutant(
        name="forgets-what-is-on-its-way",
        rule="what may have been on its way is refused, however late it is read (4.12)",
        scenarios=("S42d",),
        by_chance=False,  # 340 runs had no broker stand still for so long between two batches
        edits=(
            Edit(
                BROKER + "server/rejected_sequences.py",
                " and lowest.behind >= IN_FLIGHT_MAX - 1:",
                ":",
            ),
        ),
    ),
    Mutant(
        name="waits-over-terms",
        rule="who waits for a commit is told when the leader's term ends (4.3)",
        scenarios=("S40",),
        profile="waits",
        edits=(
            Edit(
                REPLICA,
                "            self._fail_waiters(Code.NOT_LEADER_OR_FOLLOWER)\n            end =",
                "            end =",
            ),
            Edit(
                REPLICA,
                "        self._stop_leading(Code.NOT_LEADER_OR_FOLLOWER)\n",
                "        self._proposal = None\n"
                "        self._end_moved = self._commit_moved = True\n",
            ),
        ),
    ),
)

DISKS: tuple[Mutant, ...] = (
    Mutant(
        name="marker-stays",
        rule="the marker of a clean stop is gone before the broker registers (4.9)",
        scenarios=("S26",),
        profile="disks",
        edits=(
            Edit(
                BROKER + "storage/clean_shutdown.py",
                "    disk.remove(path)\n    disk.sync_directory(directory)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="marker-before-the-disk",
        rule="a clean stop is marked only once every log is on the disk (4.9)",
        scenarios=("S27",),
        edits=(Edit(LOG, "            self.flush(checkpoint=True)\n", ""),),
    ),
    Mutant(
        name="batches-unchecked-at-load",
        rule="after an unclean stop every batch's CRC is checked (4.9)",
        profile="disks",
        scenarios=("S39",),
        edits=(
            Edit(
                BROKER + "storage/segment.py",
                "if not check_crc(chunk, position - start, header.length):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="terms-outlive-their-records",
        rule="a cut drops the terms from there on (4.8)",
        scenarios=("S03",),
        profile="two terms",
        edits=(
            Edit(
                LOG,
                "        self.epochs.truncate_from_end(offset)\n\n    def _cut_from",
                "\n    def _cut_from",
            ),
        ),
    ),
)

METADATA_LOG: tuple[Mutant, ...] = (
    Mutant(
        name="overwrites-a-slot",
        rule="a slot is updated under the version in which its content was read",
        scenarios=("R01",),
        profile="log",
        edits=(
            Edit(
                RING,
                "        stored = codec.store(batch)\n",
                "        slot = await self._read_back(slot.number)\n"
                "        stored = codec.store(batch)\n",
            ),
        ),
    ),
)

RESTARTS: tuple[Mutant, ...] = (
    Mutant(
        name="restarts-at-the-margin",
        rule="nobody leaves a partition below its min ISR on purpose (the arbiter)",
        scenarios=("R09",),
        profile="rolls",
        edits=(
            Edit(
                CORE + "controller/kernel/availability_margin.py",
                "if not spares or min(spares) >= 0:",
                "if True:",
            ),
        ),
    ),
    Mutant(
        name="grants-do-not-count",
        rule="whoever was granted a restart counts as away (the arbiter)",
        scenarios=("R09",),
        profile="rolls",
        edits=(
            Edit(
                CORE + "controller/brokers/restart_grants.py",
                "absent = (away(image) | turn.soft.leaving",
                "absent = (turn.soft.leaving",
            ),
        ),
    ),
    Mutant(
        name="an-untried-revision-takes-many",
        rule="the first broker of a revision goes alone",
        scenarios=("R19",),
        profile="rolls",
        edits=(
            Edit(
                CORE + "controller/brokers/restart_grants.py",
                "    if not others:\n",
                "    if True:\n",
            ),
        ),
    ),
)

OTHERS = (*CONTROLLER, *REPLICAS, *DISKS, *METADATA_LOG, *RESTARTS)
