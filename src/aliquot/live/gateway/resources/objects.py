"""Endpoints of objects and blobs. Bodies are streamed to files, and files are sent in pieces."""

import asyncio
import mmap
import os
import re
from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from aliquot.clock import now_ms
from aliquot.live.gateway.entities.common import PAGE
from aliquot.live.gateway.http.asgi import Disconnected
from aliquot.live.gateway.http.query import page_of
from aliquot.live.gateway.http.refusal import CLOSE, SLOW, Refusal, not_found
from aliquot.live.gateway.http.routing import Endpoint, Query, Request, Response, json_response
from aliquot.live.objects.files import IncomingFile
from aliquot.live.objects.registry import ObjectRecord, ObjectRegistry, StorageFullError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_BASE = "/api/v1/namespaces/{namespace}"
_BLOB = _BASE + "/blobs/{sha256}"
_ALL = _BASE + "/objects"
_ONE = _ALL + "/{key}"
_BYTES = (b"content-type", b"application/octet-stream")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_MAX_KEY_LENGTH = 512
INSUFFICIENT_STORAGE = 507
NOT_MODIFIED = 304

NamedByGraphs = Callable[[str], Iterable[str]]


class BlobView(Struct):
    """A blob that is stored."""

    sha256: str
    size: int


class ObjectCount(Struct):
    """The number of objects, for a list that is only counted."""

    objects: int


class ObjectEndpoints:
    """Handles requests for objects and blobs of the caller's namespace."""

    def __init__(self, objects: ObjectRegistry, body_timeout_s: float) -> None:
        """A client that sends nothing for `body_timeout_s` is disconnected."""
        self._objects = objects
        self._body_timeout_s = body_timeout_s

    def endpoints(self) -> list[Endpoint]:
        statuses = (400, 404, 408, INSUFFICIENT_STORAGE)
        blob, record = {200: BlobView}, {200: ObjectRecord}
        prefix = Query("prefix", str, "the beginning of the keys")
        return [
            Endpoint("PUT", _BLOB, self.put_blob, "Store bytes by their SHA-256", blob, statuses=statuses, raw=True),
            Endpoint("GET", _BLOB, self.get_blob, "Read a blob", {200: None}, statuses=(400, 404)),
            Endpoint("GET", _ALL, self.list, "List objects", {200: list[ObjectRecord] | ObjectCount},
                     query=(*PAGE, prefix)),
            Endpoint("PUT", _ONE, self.put, "Store an object", record, statuses=statuses, raw=True),
            Endpoint("GET", _ONE, self.get, "Read an object", {200: None, 304: None}, statuses=(400, 404)),
            Endpoint("DELETE", _ONE, self.delete, "Delete an object", record, statuses=(400, 404)),
        ]  # fmt: skip

    async def put_blob(self, request: Request) -> Response:
        digest = _digest(request)
        async with self._received(request) as (file, found):
            if found != digest:
                raise Refusal(400, f"The body has the SHA-256 {found}, and not the one of the path.")
            if self._objects.blob_size(request.namespace, digest) is None:
                await self._objects.keep_blob(request.namespace, file, digest)
        return json_response(BlobView(digest, file.size))

    async def get_blob(self, request: Request) -> Response:
        return self._response(request, _digest(request))

    async def list(self, request: Request) -> Response:
        found = self._objects.all(request.namespace, request.fields.get("prefix", ""))
        page = page_of(request.fields, "objects")
        if page.count:
            return json_response(ObjectCount(max(0, len(found) - page.skip)))
        return json_response(found[page.skip : page.skip + page.limit])

    async def put(self, request: Request) -> Response:
        key = _key(request)
        async with self._received(request) as (file, digest):
            if self._objects.blob_size(request.namespace, digest) is None:
                await self._objects.keep_blob(request.namespace, file, digest)
            record = ObjectRecord(key, digest, file.size, now_ms())
            await self._objects.put(request.namespace, record)
        return json_response(record)

    async def get(self, request: Request) -> Response:
        await self._objects.pending.settled(request.namespace, _key(request))
        record = self._find(request)
        etag = b'"%b"' % record.sha256.encode()
        if request.headers.get(b"if-none-match") == etag:
            return Response(NOT_MODIFIED, b"", ((b"etag", etag),))
        return self._response(request, record.sha256, (b"etag", etag))

    async def delete(self, request: Request) -> Response:
        await self._objects.pending.settled(request.namespace, _key(request))
        record = self._find(request)
        await self._objects.delete(request.namespace, record.key)
        return json_response(record)

    def _find(self, request: Request) -> ObjectRecord:
        key = _key(request)
        record = self._objects.find(request.namespace, key)
        if record is None and (why := self._objects.pending.why_lost(request.namespace, key)) is not None:
            raise Refusal(410, why)
        if record is None:
            raise not_found(key)
        return record

    def _response(self, request: Request, digest: str, *more: tuple[bytes, bytes]) -> Response:
        if self._objects.blob_size(request.namespace, digest) is None:
            raise not_found(digest)
        try:
            descriptor = os.open(self._objects.files.path(request.namespace, digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise Refusal(410, f"The bytes with the SHA-256 {digest} are gone from the disk.") from error
        try:
            size = os.fstat(descriptor).st_size
            body = memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ)) if size else b""
        finally:
            os.close(descriptor)
        return Response(200, body, (_BYTES, *more), on_disk=True)

    @asynccontextmanager
    async def _received(self, request: Request) -> "AsyncIterator[tuple[IncomingFile, str]]":
        """Receive the body into a file, and yield it with its digest. The file is gone afterwards unless it is kept."""
        file = self._objects.files.receive()
        try:
            await self._receive(request, file)
            yield file, await asyncio.to_thread(file.finish)
        except StorageFullError as error:
            raise Refusal(INSUFFICIENT_STORAGE, str(error), CLOSE) from error
        except OSError as error:
            raise Refusal(
                INSUFFICIENT_STORAGE, f"The disk does not take the object: {error.strerror}.", CLOSE
            ) from error
        finally:
            if file.size:
                self._objects.give_room_back(request.namespace, file)
            file.discard()

    async def _receive(self, request: Request, file: IncomingFile) -> None:
        assert request.receive is not None  # noqa: S101 - the endpoint takes the body itself
        more = True
        while more:
            try:
                async with asyncio.timeout(self._body_timeout_s):
                    message = await request.receive()
            except TimeoutError:
                raise Refusal(408, SLOW, CLOSE) from None
            if message["type"] != "http.request":
                raise Disconnected
            part = message.get("body", b"")
            if part:
                self._objects.take_room(request.namespace, file, len(part))
                file.write(part)
            more = message.get("more_body", False)


def _digest(request: Request) -> str:
    digest = request.names["sha256"]
    if not _DIGEST.fullmatch(digest):
        raise Refusal(400, f"'{digest}' is no SHA-256; it takes 64 digits of 0-9 and a-f.")
    return digest


def _key(request: Request) -> str:
    key = request.names["key"]
    if len(key) > _MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        raise Refusal(
            400, f"'{key[:80]}' is no key; it takes names of letters, digits, '_', '-' and '.', with '/' between."
        )
    return key
