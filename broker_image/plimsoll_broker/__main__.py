"""`python -m plimsoll_broker --config FILE`: one broker until SIGTERM.

Exit codes: 0 after a clean stop, 1 when it could not go on, 2 for a bad config, 3 when starting it
again would be refused again (another cluster's volume, say), 70 when its event loop hung.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import logging
import resource
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import uvloop

from plimsoll_broker import config as configs
from plimsoll_broker.config import BadConfig, BrokerConfig
from plimsoll_broker.handler_failures import surface
from plimsoll_broker.node.broker import BrokerNode, CannotStart
from plimsoll_broker.node.heartbeats import LifetimeOver
from plimsoll_broker.node.memory_limit import memory_limit
from plimsoll_broker.replication.cleaning_work import CleaningProcess
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.cluster.cluster_configs import OWN_DEFAULTS
from plimsoll_process.hang_watch import HangWatch, waited_ms
from plimsoll_process.log_lines import LineOutput
from plimsoll_process.loop_watch import LoopWatch
from plimsoll_process.parent import die_with_parent
from plimsoll_process.process_tuning import switch_soon, tune

logger = logging.getLogger("plimsoll.broker")


async def _run(config: BrokerConfig, output: LineOutput) -> None:
    own = {**OWN_DEFAULTS, **config.kafka_configs}
    rate = int(own["log.cleaner.io.max.bytes.per.second"])
    node = BrokerNode(config, cleaning=CleaningProcess(rate))
    node.write_lines = lambda wanted: output.write(wanted.level, wanted.format)
    loop = asyncio.get_running_loop()
    surface(loop, node.fail)
    # They wait for disks, not for processors: as many as there are processors would be too few.
    loop.set_default_executor(ThreadPoolExecutor(THREADS_MAX, "work"))
    watch = LoopWatch()
    node.holds = watch.holds
    node.thread_waited_ms = lambda: waited_ms(threading.get_native_id())
    hang_watch = HangWatch(watch.holds)
    watch.start()
    hang_watch.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.stop)
    try:
        await node.run()
    finally:
        hang_watch.stop()
        watch.stop()


THREADS_MAX = 32
FINAL = 3
TERMINATION_MESSAGE = Path("/dev/termination-log")
TERMINATION_MESSAGE_MAX = 1_000
COLLECTOR = (10_000, 4, 50)
"""Thresholds of the garbage collector's three generations, for `gc.set_threshold`. A collection
stops the event loop for 1 to 2 ms, or for about 15 ms if it visits the 40,000 objects that survived
earlier ones. A full collection comes only after two million more objects were made."""


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGE_BLOCK = 1024 * 1024
KEPT_BYTES = 8 * 1024 * 1024
ARENAS = 4
"""The most malloc arenas. Each keeps up to KEPT_BYTES of freed memory; without this limit there
could be an arena for each thread."""


def tune_malloc() -> None:
    """Set up glibc's malloc so that a block of LARGE_BLOCK bytes or more returns to the kernel when
    it is freed, and smaller ones stay with the process. Do nothing if the C library has no
    `mallopt`.

    By default malloc comes to keep blocks of up to 32 MiB in the heap. A long-lived block behind a
    freed one pins it there, so memory that the budgets count as free would stay with the process.
    With the first setting alone, malloc returns and requests the 128 KiB at the heap's end again
    and again, which costs a page fault for each 4 KiB that a producer writes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_ARENA_MAX, ARENAS)


def _within_its_container(config: BrokerConfig) -> BrokerConfig:
    """Raise the process's soft limit of file descriptors to the hard limit. Return the config with
    the memory limit in bytes and the number of descriptors filled in, where the file does not state
    them; None for a limit that does not exist."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    return msgspec.structs.replace(
        config,
        memory_limit_bytes=config.memory_limit_bytes or memory_limit(),
        open_files_max=config.open_files_max or (None if files < 0 else files),
    )


def _leave_message(text: str) -> None:
    """Write why the broker cannot start into the container's termination message, from which the
    operator quotes it in statuses. Do nothing outside a container."""
    with contextlib.suppress(OSError), TERMINATION_MESSAGE.open("r+") as file:
        file.write(text[:TERMINATION_MESSAGE_MAX])


def main() -> int:
    parser = argparse.ArgumentParser(prog="plimsoll_broker", description="One Plimsoll broker.")
    parser.add_argument("--config", type=Path, required=True, help="JSON or YAML")
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("--die-with-parent", type=int, metavar="PID")
    arguments = parser.parse_args()
    if arguments.die_with_parent is not None:
        die_with_parent(arguments.die_with_parent)
    handler = logging.StreamHandler(sys.stderr)
    logging.basicConfig(handlers=[handler])
    output = LineOutput(handler, arguments.log_level)
    try:
        config = configs.read(arguments.config)
    except BadConfig as error:
        logger.error("the broker cannot start: %s", error)
        return 2
    config = _within_its_container(config)
    tune_malloc()
    tune(*COLLECTOR)
    switch_soon()
    try:
        uvloop.run(_run(config, output))
    except CannotStart as error:
        logger.error("the broker cannot start: %s", error)
        _leave_message(str(error))
        return FINAL
    except (LifetimeOver, StorageError, OSError) as error:
        logger.error(
            "the broker stops because of an error, and Kubernetes (or `plimsoll local` without "
            "--no-restart) starts it again; if this repeats, remove the cause: %s",
            error,
        )
        return 1
    except Exception:
        logger.critical(
            "the broker exits because of an internal error, and is started again; please report "
            "the error with this traceback",
            exc_info=True,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
