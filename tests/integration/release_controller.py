"""A controller alone, as one release has it: brokers of any release are started beside it.

Run as a script with `PYTHONPATH` set to a release's sources; it imports nothing but that release.
Prints one JSON line once it leads.  SIGTERM stops it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from uuid import UUID

from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.messages.requests import SetMembers
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.metalog.directory import DirectoryLog

try:
    from plimsoll_operator.controller.controller_options import ControllerOptions
    from plimsoll_operator.controller.controller_term import Controller, Outcome
except ImportError:  # where release 0.2 has them
    from plimsoll_operator.controller.outcome import ControllerOptions, Outcome

    from plimsoll_operator.controller.controller_term import Controller


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster-id", type=UUID, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--metadata-version", type=int)
    return parser.parse_args()


async def serve(asked: argparse.Namespace) -> int:
    log = DirectoryLog(asked.data, asked.cluster_id)
    controller = Controller(
        cluster_id=asked.cluster_id,
        name="releases",
        log=log,
        settings=Settings(metadata_version=asked.metadata_version),
        identity="test",
        options=ControllerOptions(always_confirmed=True),
    )
    server = ControllerServer("127.0.0.1", asked.port)
    await server.start()
    server.add(controller)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    running = asyncio.ensure_future(controller.run())
    active = asyncio.ensure_future(controller.wait_active())
    stop = asyncio.ensure_future(stopped.wait())
    await asyncio.wait([running, active, stop], return_when=asyncio.FIRST_COMPLETED)
    if active.done():
        await controller.request(SetMembers(broker_ids=tuple(range(asked.members))))
        print(json.dumps({"pid": 0, "from": sys.modules[Controller.__module__].__file__}))
        sys.stdout.flush()
        await asyncio.wait([running, stop], return_when=asyncio.FIRST_COMPLETED)
    if running.done() and running.result() is not Outcome.STOPPED:
        print(running.result().value, file=sys.stderr)
        return 4
    await controller.stop()
    await server.close()
    for task in (active, stop):
        task.cancel()
    await asyncio.wait([running])
    await log.close()
    return 0


if __name__ == "__main__":
    logging.basicConfig(level="INFO", stream=sys.stderr)
    sys.exit(asyncio.run(serve(arguments())))
