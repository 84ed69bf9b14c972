"""The controller: one asyncio task per LogCluster around the pure `plimsoll_core.controller`."""
