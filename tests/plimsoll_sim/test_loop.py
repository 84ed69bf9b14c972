"""A process that was stopped for a while goes on where it was."""

import asyncio
import random
from collections.abc import Callable

from plimsoll_sim.engine.determinism import instead
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process


def test_sim_loop_runs_missed_timers_one_per_step() -> None:
    """It ends with the last of them: what it did before that can be looked at while it lives."""
    loop = SimLoop(random.Random(1))  # type: ignore[abstract]
    done: list[str] = []
    process = Process(loop, "a", "a")
    over: list[asyncio.Event] = []

    async def main() -> None:
        over.append(asyncio.Event())
        await over[0].wait()

    def at(us: int, callback: Callable[[], object]) -> None:
        process.call(lambda: loop.at_us(us, callback))

    with instead(loop, random.Random(1)):
        process.start(main())
        loop.step()
        at(100, lambda: done.append("first"))
        at(200, lambda: done.append("second"))
        at(300, lambda: over[0].set())
        loop.at_us(400, lambda: None)
        loop.at_us(500, lambda: done.append("somebody else"))
        process.pause()
        for _ in range(4):
            loop.step()
        assert (done, loop.now_us) == ([], 400)

        process.resume()
        assert loop.next_us() == 400, "before anything else"
        loop.step()
        assert (done, list(loop.touched)) == (["first"], [process])
        loop.step()
        assert (done, process.alive) == (["first", "second"], True)
        loop.step()
        assert not process.alive
        loop.step()
        assert (done, loop.now_us) == (["first", "second", "somebody else"], 500)
        loop.close()


def test_sim_loop_keeps_order_of_busy_process() -> None:
    """What is sent over a connection would arrive the other way round."""
    loop = SimLoop(random.Random(1))  # type: ignore[abstract]
    done: list[str] = []
    process = Process(loop, "a", "a")
    with instead(loop, random.Random(1)):
        process.pause()
        for us in (100, 110):
            process.call(lambda us=us: loop.at_us(us, lambda: loop.pass_time(100)))
            loop.step()
        loop.at_us(200, lambda: done.append("first"))
        loop.at_us(300, lambda: done.append("second"))
        process.resume()
        while loop.step():
            pass
        assert (done, loop.now_us) == (["first", "second"], 310)
        assert not loop.behind
        loop.close()
