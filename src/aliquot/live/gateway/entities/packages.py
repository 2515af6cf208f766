"""Packages and bindings: create, update, read, list, delete."""

from msgspec.structs import replace

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.resolving import merged, readable_package
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import OVERWRITE, PAGE, find, listed, name_of, replaced
from aliquot.live.gateway.entities.package_entity import build, shown, shown_in_list, shown_whole
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Access, Endpoint, Query, Request, Response, json_response, read_json
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.records import FullName, Package

_ALL = "/api/v1/namespaces/{namespace}/packages"
_ONE = _ALL + "/{name}"
_RESERVED = "default"


class PackageEndpoints:
    def __init__(self, catalogue: Catalogue, settings: GatewaySettings) -> None:
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        force = Query("force", bool, "with all that is in it")
        items = list[wire.PackageItem] | wire.PackageCount
        item = {200: wire.PackageView}
        published = Access.PUBLISHED
        return [
            Endpoint("GET", _ALL, self.list, "List packages; of another namespace the published ones", {200: items},
                     published, query=PAGE),
            Endpoint("PUT", _ONE, self.put, "Create or update a package or binding", item, body=wire.PackagePut,
                     query=(OVERWRITE,), max_bytes=self._settings.pairs_bytes, statuses=(409, 413, 415)),
            Endpoint("GET", _ONE, self.get, "Read a package", item, published, statuses=(404, 409)),
            Endpoint("DELETE", _ONE, self.delete, "Delete a package", item, query=(force,), statuses=(404, 409)),
        ]  # fmt: skip

    async def put(self, request: Request) -> Response:
        name = name_of(request)
        overwrite = flag(request.fields, "overwrite")
        if name == _RESERVED:
            raise Refusal(400, f"Package name '{name}' is reserved.")
        put: wire.PackagePut = read_json(request.body or b"{}", wire.PackagePut)
        async with self._catalogue.writing(request.namespace):
            old = replaced(self._entities, Package, request.namespace, name, overwrite=overwrite)
            package = build(FullName(request.namespace, name), put, old, self._entities, self._settings)
            await self._catalogue.put(package)
        return json_response(shown(package))

    async def get(self, request: Request) -> Response:
        name = FullName(request.named, name_of(request))
        packages = readable_package(self._entities, request.namespace, name, f"{name.namespace}/{name.name}")
        provider, package = packages[0], packages[-1]
        contents = self._entities.contents(provider.namespace, provider.name)
        return json_response(shown_whole(replace(package, parameters=merged(packages)), contents))

    async def delete(self, request: Request) -> Response:
        force = flag(request.fields, "force")
        async with self._catalogue.writing(request.namespace):
            package = find(self._entities, Package, request.namespace, name_of(request))
            contents = self._entities.contents(package.namespace, package.name)
            if contents and not force:
                count = "1 entity" if len(contents) == 1 else f"{len(contents)} entities"
                text = f"Package not empty (contains {count}). Set force param or delete package contents."
                raise Refusal(409, text)
            await self._catalogue.delete(*contents, package)
        return json_response(shown(package))

    async def list(self, request: Request) -> Response:
        packages = self._entities.all(Package, request.named)
        if request.named != request.namespace:
            packages = [package for package in packages if package.publish and package.binding is None]
        return listed(request, "packages", packages, shown_in_list)
