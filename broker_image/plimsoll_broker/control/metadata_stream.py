"""MetadataStream: fetches committed records, stores and applies them, and calls subscribers.

One of the broker's tasks, on a connection of its own, to the controller that the controller client
has found. Callbacks get the old and the new cluster image, in order; they may skip images, but
never see one twice. If a record is of a release that this broker does not know, the broker stops
applying metadata and serves by what it has applied until it runs a newer release. Source:
ARCHITECTURE.md, "The controller"; docs/protocol.md §3.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from plimsoll_broker.background import in_slices, in_thread
from plimsoll_broker.control.controller_client import (
    ControlConnection,
    ControllerAddress,
    ControllerClient,
    connect,
)
from plimsoll_broker.control.metadata_store import MetadataCopy, StoredMetadata, advance
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.cluster.image_encoding import decode_image
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.record_versions import MetadataTooNew
from plimsoll_core.ids import MetadataOffset
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataBatchCopy, MetadataUpdate
from plimsoll_core.messages.requests import LogPosition
from plimsoll_wire import control

logger = logging.getLogger("plimsoll.metadata")

CONNECT_MS_MAX = 1_000
WAIT_MS_MAX = 500
ANSWER_MS_MAX = 10_000
RETRY_MS = 50
RETRY_MS_MAX = 1_000
RECORDS_AT_ONCE = 200
BYTES_AT_ONCE = 16 * 1024
"""Batches of at most this many records and bytes are parsed and applied on the event loop. Larger
ones go to a thread: one record may hold thousands of partitions or rules."""
SNAPSHOT_BYTES_MAX = 2 * 1024 * 1024 * 1024

Callback = Callable[[ClusterImage, ClusterImage], None]


class MetadataStream:
    """Keeps a broker's cluster image up to date. `run` is its task. `replica`: the metadata applied
    so far. `image`: the cluster image in it."""

    def __init__(self, client: ControllerClient, copy: MetadataCopy) -> None:
        self._client = client
        self._copy = copy
        self.replica: StoredMetadata = copy.load(client.peers.cluster_id)
        self._callbacks: list[Callback] = []
        self._grown = asyncio.Event()
        self._copy_is_behind = False
        self._connected: tuple[ControlConnection, ControllerAddress] | None = None
        self.unknown = ""
        """The reason why no more metadata are applied: a newer release wrote them. Empty while
        metadata are applied."""
        client.moved = self._moved

    def _moved(self) -> None:
        """Close the connection to the previous controller once the client has found another one. A
        frozen controller would never answer the pending request."""
        if self._connected is not None and self._connected[1] != self._client.address:
            self._connected[0].close("the active controller is at another address")

    @property
    def image(self) -> ClusterImage:
        return self.replica.image

    @property
    def position(self) -> LogPosition:
        """The position in the metadata log up to which this broker has applied metadata. The broker
        sends it at registration and with heartbeats."""
        return self.replica.position

    @property
    def copied_offset(self) -> MetadataOffset | None:
        """The metadata offset after the last record in the local copy. None while the copy lacks
        records because the disk failed."""
        return None if self._copy_is_behind else self.image.next_offset

    def forget(self) -> None:
        """Remove the local copy and begin with empty metadata. For a broker that has not registered
        yet, so that nothing has been done by the old metadata."""
        self.replica = self._copy.clear(self._client.peers.cluster_id)

    def subscribe(self, callback: Callback) -> None:
        """Have `callback` called with the old and the new cluster image after each applied update,
        after the earlier subscribers."""
        self._callbacks.append(callback)

    async def wait_applied(self, offset: MetadataOffset) -> None:
        """Wait until the record at `offset` is applied."""
        while self.image.next_offset <= offset:
            self._grown.clear()
            await self._grown.wait()

    async def run(self) -> None:
        """Fetch and apply records until cancelled, and reconnect after errors of the connection or
        the controller. Once a record is of an unknown release (`unknown`), only wait. Raises only
        errors that the broker cannot continue with."""
        delay_ms = RETRY_MS
        while not self.unknown:
            address = await self._client.wait_address()
            applied = self.image.next_offset
            try:
                connection = await connect(
                    *address, self._client.peers.client_id, CONNECT_MS_MAX, self._client.inside
                )
                self._connected = connection, address
                try:
                    await self._follow(connection, address)
                finally:
                    self._connected = None
                    connection.close(
                        "the controller closed the stream from which this broker reads metadata"
                    )
            except (ConnectionError, TimeoutError, control.MalformedControlMessage) as error:
                logger.info(
                    "this broker lost its metadata stream from the controller at %s and connects "
                    "again: %s",
                    address,
                    error,
                )
            except OSError as error:
                logger.info(
                    "this broker cannot open a metadata stream from the controller at %s, and "
                    "tries again: %s",
                    address,
                    error,
                )
            progress = self.image.next_offset > applied
            delay_ms = RETRY_MS if progress else min(delay_ms * 2, RETRY_MS_MAX)
            await asyncio.sleep(delay_ms / 1000)
        # Unknown records stay unknown: only another release can read them.
        await asyncio.Event().wait()

    async def _follow(self, connection: ControlConnection, address: ControllerAddress) -> None:
        """Fetch and apply metadata over this connection until the client changes to another
        controller or `unknown` is set. Raise ConnectionError if the controller refuses or is
        outdated, or if the connection has to be replaced."""
        while self._client.address in (address, None) and not self.unknown:
            fetch = FetchMetadata(
                cluster_id=self._client.peers.cluster_id,
                broker_id=self._client.peers.broker_id,
                offset=self.image.next_offset,
                nonce=self.replica.nonce,
                term_id=self.image.term_id,
                wait_ms_max=WAIT_MS_MAX,
            )
            if self._client.inside.is_outdated(connection.link):
                raise ConnectionError(
                    "the connection uses an outdated certificate or TLS mode, so the broker "
                    "replaces it"
                )
            reply = await connection.fetch_metadata(fetch, ANSWER_MS_MAX)
            if reply.refused is not None:
                refused = reply.refused
                raise ConnectionError(
                    f"the controller refused to send metadata ({refused.reason}): {refused.message}"
                )
            if not self._client.believes(reply.controller_epoch):
                raise ConnectionError(
                    "the metadata comes from an outdated controller, of epoch "
                    f"{reply.controller_epoch}; this broker knows a newer controller"
                )
            if reply.update is not None:
                await self._apply(reply.update)

    async def _apply(self, update: MetadataUpdate) -> None:
        """Store and apply an update, and call each subscriber once. At a record that this release
        does not know, apply the batches before it and stop applying metadata for good. Do nothing
        for an empty update. Raise ConnectionError if the update leaves a gap."""
        old = self.image
        known: list[MetadataBatchCopy] = []
        try:
            replica = self.replica
            if update.snapshot is not None:
                replica = await in_thread(partial(self._from_snapshot, update))
            async for batch in in_slices(update.batches):
                if batch.base_offset != replica.image.next_offset:
                    raise ConnectionError(
                        f"the controller sent metadata of offset {batch.base_offset}, but offset"
                        f" {replica.image.next_offset} comes next"
                    )
                further = partial(advance, replica, batch)
                long = (
                    batch.record_count > RECORDS_AT_ONCE or len(batch.records_json) > BYTES_AT_ONCE
                )
                replica = await in_thread(further) if long else further()
                known.append(batch)
        except MetadataTooNew as error:
            self._stop_applying(str(error))
            update = msgspec.structs.replace(update, batches=tuple(known))
            if not known:
                return
        if replica is self.replica:
            return
        kept = await self._keep(replica, update)
        self.replica = replica
        for callback in self._callbacks:
            callback(old, replica.image)
        self._grown.set()
        due = update.snapshot is not None or self._copy_is_behind or self._copy.needs_snapshot()
        if due and not kept:
            await self._keep_all(replica)

    def _stop_applying(self, why: str) -> None:
        """Apply no more metadata, and send no more commands that depend on partitions, until the
        broker runs a newer release."""
        logger.error(
            "this broker cannot read newer metadata, which a newer release wrote; it serves with "
            "its last metadata until you upgrade it to that release: %s",
            why,
        )
        self.unknown = why
        self._client.cut_off(why)

    async def _keep(self, replica: StoredMetadata, update: MetadataUpdate) -> bool:
        """Store an update in the local copy, before it is applied: append batches, but not a
        snapshot, which the caller stores later. If the certificate mode changes, write the update
        to the disk at once, since a broker that no longer requires certificates must know that
        after a crash. Return True if this call has stored the whole image as a snapshot. A disk
        error only marks the copy as behind."""
        durable = replica.image.inside.mode is not self.image.inside.mode
        if update.snapshot is None:
            self._append(update.batches)
        if not durable:
            return False
        if update.snapshot is not None or self._copy_is_behind:
            await self._keep_all(replica)
            return not self._copy_is_behind
        try:
            await in_thread(self._copy.sync)
        except StorageError as error:
            self._fell_behind(error)
        return False

    def _append(self, batches: Iterable[MetadataBatchCopy]) -> None:
        """Append the batches to the local copy, without a sync. If the disk fails, mark the copy as
        behind; while it is, append nothing. The broker itself does not depend on the copy."""
        if self._copy_is_behind:
            return
        try:
            for batch in batches:
                self._copy.append(batch)
        except StorageError as error:
            self._fell_behind(error)

    async def _keep_all(self, replica: StoredMetadata) -> None:
        """Replace the local copy by a snapshot of this image, in a thread; the copy then counts as
        complete. If the disk fails, mark it as behind. Nothing else writes to the local copy
        meanwhile."""
        try:
            await in_thread(partial(self._copy.write_snapshot, replica))
            self._copy_is_behind = False
        except StorageError as error:
            self._fell_behind(error)

    def _fell_behind(self, error: StorageError) -> None:
        """Mark the local copy as behind, since the disk failed, and log the first such error. The
        next update replaces the copy by a snapshot."""
        if not self._copy_is_behind:
            logger.warning(
                "this broker cannot write its copy of the metadata to its disk and tries again; "
                "it serves clients meanwhile; if this lasts, check the broker's volume: %s",
                error,
            )
        self._copy_is_behind = True

    def _from_snapshot(self, update: MetadataUpdate) -> StoredMetadata:
        """Return the metadata in the update's compressed snapshot. Raise ConnectionError if it is
        unreadable, has another end offset than stated, or ends before the applied metadata."""
        assert update.snapshot is not None
        decompressor = zlib.decompressobj()
        try:
            encoded = decompressor.decompress(update.snapshot, SNAPSHOT_BYTES_MAX)
            image = decode_image(encoded)
        except (zlib.error, msgspec.DecodeError) as error:
            raise ConnectionError(
                f"the metadata snapshot from the controller cannot be read: {error}"
            ) from error
        if image.next_offset != update.snapshot_end or image.next_offset < self.image.next_offset:
            raise ConnectionError(
                f"the controller's metadata snapshot ends at offset {image.next_offset}, but must "
                f"end at the stated offset {update.snapshot_end}, and not before offset "
                f"{self.image.next_offset}, which this broker has reached"
            )
        return StoredMetadata(
            image=image, nonce=update.snapshot_nonce, controller_epoch=image.controller_epoch
        )
