"""Endpoints for volumes and their files. Only the keys of a namespace reach its volumes."""

from msgspec import UNSET, Struct, UnsetType

from aliquot.core.units import MIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.secrets import users_of
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.datasets.volumes import DEFAULT_VOLUME_BYTES, Volume
from aliquot.live.gateway.entities.common import PAGE
from aliquot.live.gateway.http.names import check_name
from aliquot.live.gateway.http.query import flag, number, page_of
from aliquot.live.gateway.http.refusal import EXISTS, Refusal, malformed_query
from aliquot.live.gateway.http.routing import Endpoint, Query, Request, Response, json_response, read_json
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.ids import Ids
from aliquot.storage.volumes.records import VolumeEntry

_ALL = "/api/v1/namespaces/{namespace}/volumes"
_ONE = _ALL + "/{volume}"
_FILES, _FOLDERS = _ONE + "/files", _ONE + "/folders"
_MAX_UPLOAD_ID_LENGTH = 64
_MAX_OFFSET = 2**62
MAX_PART_BYTES = 16 * MIB  # of a file, in one response
OCTETS = "application/octet-stream"
_PATH = Query("path", str, "the path in the volume, such as a/b.txt")


class VolumePut(Struct, forbid_unknown_fields=True):
    """The size of a volume in bytes. Without it a new one has 10 GiB, and an old one keeps its size."""

    size: int | UnsetType = UNSET


class VolumeItem(Struct, rename="camel"):
    """A volume. Sizes are in bytes, times in milliseconds since the epoch."""

    namespace: str
    name: str
    size: int
    used: int | None  # None if it could not be counted now
    functions: list[str]  # those that name it
    created: int


class VolumeCount(Struct):
    volumes: int


class PathWritten(Struct):
    """A file, with its bytes that are there, or a folder. An upload in parts goes on from here."""

    path: str
    size: int


class PathsRemoved(Struct):
    removed: int


class VolumeEndpoints:
    """Handles requests for volumes."""

    def __init__(self, fabric: Fabric, catalogue: Catalogue, settings: GatewaySettings) -> None:
        self._registry = fabric.volumes
        self._files = fabric.volume_files
        self._catalogue = catalogue
        self._settings = settings
        self._ids = Ids()

    def endpoints(self) -> list[Endpoint]:
        one = {200: VolumeItem}
        overwrite = Query("overwrite", bool, "change the size of the volume if it exists")
        force = Query("force", bool, "delete it even if functions name it")
        range_ = (Query("offset", int, "the first byte"), Query("limit", int, "the number of bytes"))
        parts = (
            Query("upload", str, "an id of the upload, if the file comes in several parts"),
            Query("offset", int, "the byte at which this part begins"),
            Query("last", bool, "it is the last part, with which the file gets its name"),
        )
        return [
            Endpoint("GET", _ALL, self.list, "List volumes", {200: list[VolumeItem] | VolumeCount}, query=PAGE),
            Endpoint("PUT", _ONE, self.put, "Create a volume", one, body=VolumePut, query=(overwrite,),
                     max_bytes=1024, statuses=(408, 409, 413, 415, 429)),
            Endpoint("GET", _ONE, self.get, "Read a volume", one, statuses=(404,)),
            Endpoint("DELETE", _ONE, self.delete, "Delete a volume with its files", one, query=(force,),
                     statuses=(404, 409)),
            Endpoint("GET", _FOLDERS, self.list_folder, "List a folder of a volume", {200: list[VolumeEntry]},
                     query=(_PATH, *PAGE), statuses=(404, 503)),
            Endpoint("PUT", _FOLDERS, self.make_folder, "Make a folder and those above it", {200: PathWritten},
                     query=(_PATH,), statuses=(404, 413, 503)),
            Endpoint("GET", _FILES, self.read, "Read a file, or a part of it", {200: None, 206: None},
                     also_takes=(OCTETS,), query=(_PATH, *range_), statuses=(404, 503)),
            Endpoint("PUT", _FILES, self.write, "Write a file", {200: PathWritten}, body=bytes, also_takes=(OCTETS,),
                     query=(_PATH, *parts), max_bytes=self._settings.payload_bytes,
                     statuses=(404, 408, 413, 415, 429, 503)),
            Endpoint("DELETE", _FILES, self.remove, "Remove a file or a folder", {200: PathsRemoved},
                     query=(_PATH, Query("recursive", bool, "with everything in it")), statuses=(404, 503)),
        ]  # fmt: skip

    # --- volumes ------------------------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        page = page_of(request.fields, "volumes")
        found = self._registry.all(request.namespace)
        if page.count:
            return json_response(VolumeCount(max(0, len(found) - page.skip)))
        return json_response(await self._items(*found[page.skip : page.skip + page.limit]))

    async def get(self, request: Request) -> Response:
        return json_response((await self._items(self._find(request)))[0])

    async def put(self, request: Request) -> Response:
        name, namespace = check_name(request.names["volume"]), request.namespace
        overwrite = flag(request.fields, "overwrite")
        put: VolumePut = read_json(request.body or b"{}", VolumePut)
        async with self._catalogue.writing(namespace):
            known = {volume.name: volume.max_bytes for volume in self._registry.all(namespace)}
            if not overwrite and name in known:
                raise Refusal(409, EXISTS)
            size = known.get(name, DEFAULT_VOLUME_BYTES) if put.size is UNSET else put.size
            volume = await self._registry.put(
                namespace, name, size, max_volumes=self._settings.volumes_per_namespace,
                max_total_bytes=self._max_bytes(request),
            )  # fmt: skip
        return json_response((await self._items(volume))[0])

    def _max_bytes(self, request: Request) -> int | None:
        assert request.principal is not None  # noqa: S101 - the endpoint requires a key
        own = request.principal.namespace.quota.volume_bytes
        return self._settings.volume_bytes if own is None else own

    async def delete(self, request: Request) -> Response:
        force, namespace = flag(request.fields, "force"), request.namespace
        async with self._catalogue.writing(namespace):
            volume = self._find(request)
            item = self._item(volume, None)
            await self._registry.delete(volume, item.functions, force=force)
        return json_response(item)

    def _item(self, volume: Volume, used: int | None) -> VolumeItem:
        functions = [action.name for action in users_of(self._catalogue, volume.namespace, volume.name, "volumes")]
        return VolumeItem(volume.namespace, volume.name, volume.max_bytes, used, functions, volume.created)

    def _find(self, request: Request) -> Volume:
        return self._registry.find(request.namespace, check_name(request.names["volume"]))

    async def _items(self, *volumes: Volume) -> tuple[VolumeItem, ...]:
        used = await self._files.used_bytes([volume.id for volume in volumes]) if volumes else {}
        return tuple(self._item(volume, used.get(volume.id)) for volume in volumes)

    # --- files --------------------------------------------------------------------------------------------

    async def list_folder(self, request: Request) -> Response:
        page = page_of(request.fields, "folders")
        volume = self._find(request)
        return json_response(await self._files.entries(volume.id, _path(request), page.skip, page.limit))

    async def make_folder(self, request: Request) -> Response:
        await self._files.make_directory(self._find(request).id, _path(request))
        return json_response(PathWritten(_path(request), 0))

    async def read(self, request: Request) -> Response:
        offset = _count(request, "offset", 0)
        limit = min(_count(request, "limit", MAX_PART_BYTES), MAX_PART_BYTES)
        part = await self._files.read(self._find(request).id, _path(request), offset, limit)
        headers = (
            (b"content-type", OCTETS.encode()),
            (b"x-aliquot-size", b"%d" % part.size),
            (b"etag", f'"{part.version}"'.encode()),
        )
        whole = offset == 0 and len(part.data) == part.size
        return Response(200 if whole else 206, part.data, headers)

    async def write(self, request: Request) -> Response:
        upload = request.fields.get("upload", "")
        if len(upload) > _MAX_UPLOAD_ID_LENGTH:
            raise malformed_query("upload", f"it takes at most {_MAX_UPLOAD_ID_LENGTH} characters")
        offset = _count(request, "offset", 0)
        path, volume = _path(request), self._find(request)
        last = flag(request.fields, "last") if upload else True
        size = await self._files.write(volume.id, path, request.body, upload or self._ids(), offset, last=last)
        return json_response(PathWritten(path, size))

    async def remove(self, request: Request) -> Response:
        recursive = flag(request.fields, "recursive")
        return json_response(
            PathsRemoved(await self._files.remove(self._find(request).id, _path(request), recursive=recursive))
        )


def _path(request: Request) -> str:
    return request.fields.get("path", "")


def _count(request: Request, name: str, default: int) -> int:
    """Return a number of bytes from the query."""
    text = request.fields.get(name)
    value = default if text is None else number(text)
    if value is None or not 0 <= value < _MAX_OFFSET:
        raise malformed_query(name, f"'{text}' is not a number of bytes from 0 on")
    return value
