"""State that the faults of one run share: the world, the random numbers, and how faults end.

`schedule` creates one `FaultContext` for each run and passes it to every fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from plimsoll_sim.cluster.world import World
from plimsoll_sim.environment.simulated_disk import Folder
from plimsoll_sim.hosts.brokers import BrokerHost

SCRIPT_POLL_US = 20_000
"""Period in virtual microseconds at which a script's condition is evaluated, if the script states
none."""


class Wait(NamedTuple):
    """The condition that a script waits for before its next step."""

    condition: Callable[[], bool] | None
    """Function that returns True when the script can continue. None: only the time counts."""
    ms_max: int
    """Virtual milliseconds after which the script continues although the condition is false."""
    poll_us: int = SCRIPT_POLL_US
    """Period in virtual microseconds at which the condition is evaluated. Each time is a step of
    the run."""


Script = Iterator[Wait]
"""A fault of several steps: a generator that acts, and yields a `Wait` between its steps."""


def pause(ms: int) -> Wait:
    """Return a wait of `ms` virtual milliseconds."""
    return Wait(None, ms)


class FaultContext:
    """The faults of one run: the world on which they act, and state that they share."""

    def __init__(self, world: World) -> None:
        self.world = world
        # The random numbers of the fault that struck last.  A script that goes on after a wait
        # draws from them, too, whichever fault they belong to by then.
        self.rng: random.Random = world.rng
        # False once the world is healed: what was scheduled does nothing any more.
        self.active = True
        # True while no other fault may strike.
        self.alone = False
        # Faults that have struck and not ended; `RunOptions.at_once` limits them.
        self.lasting = 0
        # An earlier content of a broker's disk, by broker id, for `disks.restore_disk_image`.
        self.disk_images: dict[int, Folder] = {}
        # An earlier content of etcd, for `api_server.restore_etcd`.
        self.etcd_backup = world.etcd.backup()
        # Earlier objects of the metadata's backup, for `backups.spoil`.
        self.older_backup: dict[str, bytes] = {}

    def heal_later(self, action: Callable[[], None]) -> None:
        """Schedule the end of a fault, after `RunOptions.heal_ms` on average. It is dropped if the
        world is healed before."""
        ms = self.rng.expovariate(1 / self.world.options.heal_ms) + 1
        self.lasting += 1

        def act() -> None:
            self.lasting -= 1
            if self.active:
                action()

        self.world.later(round(ms * 1_000), act)

    def start_later(self, host: BrokerHost) -> None:
        """Schedule the start of a broker that a fault has stopped."""
        self.heal_later(lambda: self.world.start_broker(host))

    def run(self, script: Script) -> None:
        """Run a script's first step now, and each further step when its wait is over."""
        self.lasting += 1
        self._advance(script)

    def _advance(self, script: Script) -> None:
        wait = next(script, None) if self.active else None
        if wait is None:
            self.lasting -= 1
            return
        condition, ms_max, poll_us = wait
        deadline_us = self.world.loop.now_us + ms_max * 1_000

        def poll() -> None:
            over = self.world.loop.now_us >= deadline_us or not self.active
            if over or (condition is not None and condition()):
                self._advance(script)
            else:
                self.world.later(poll_us, poll)

        poll()
