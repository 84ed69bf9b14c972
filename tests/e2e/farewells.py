"""Waits until an event loop's connections are closed, before a test's loop ends."""

import asyncio

FAREWELLS_S = 40
"""Longer than asyncio lets a peer take for the end of TLS."""


async def farewells_said() -> None:
    """Of requests that were cancelled aiohttp forgets the connections while TLS is ended on them:
    closing a client does not wait for those, and a busy API server answers when the loop is gone.
    """
    loop = asyncio.get_running_loop()
    watched = loop._selector.get_map()  # type: ignore[attr-defined]
    async with asyncio.timeout(FAREWELLS_S):
        connections = len(watched) - 1  # one is the loop's own
        while connections:
            await asyncio.sleep(0.01)
            connections = len(watched) - 1
