"""Packages and bindings: create, update, read, list, delete."""

from msgspec.structs import replace

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.resolving import merged, readable_package
from aliquot.live.gateway import wire
from aliquot.live.gateway.entity import OVERWRITE, PAGE, find, listed, name_of, replaced
from aliquot.live.gateway.package_entity import build, shown, shown_in_list, shown_whole
from aliquot.live.gateway.query import flag
from aliquot.live.gateway.refusal import Refusal
from aliquot.live.gateway.routing import Access, Answer, Asked, Endpoint, Query, json, read_json
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.records import FullName, Package

_ALL = "/api/v1/namespaces/{namespace}/packages"
_ONE = _ALL + "/{name}"
_RESERVED = "default"


class Packages:
    def __init__(self, catalogue: Catalogue, settings: GatewaySettings) -> None:
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        force = Query("force", bool, "with all that is in it")
        items = list[wire.PackageItem] | wire.PackageCount
        item = {200: wire.Package}
        published = Access.PUBLISHED
        return [
            Endpoint("GET", _ALL, self.list, "List packages; of another namespace the published ones", {200: items},
                     published, query=PAGE),
            Endpoint("PUT", _ONE, self.put, "Create or update a package or binding", item, body=wire.PackagePut,
                     query=(OVERWRITE,), most_bytes=self._settings.pairs_bytes, statuses=(409, 413, 415)),
            Endpoint("GET", _ONE, self.get, "Read a package", item, published, statuses=(404, 409)),
            Endpoint("DELETE", _ONE, self.delete, "Delete a package", item, query=(force,), statuses=(404, 409)),
        ]  # fmt: skip

    async def put(self, asked: Asked) -> Answer:
        name = name_of(asked)
        overwrite = flag(asked.fields, "overwrite")
        if name == _RESERVED:
            raise Refusal(400, f"Package name '{name}' is reserved.")
        put: wire.PackagePut = read_json(asked.body or b"{}", wire.PackagePut)
        async with self._catalogue.writing(asked.namespace):
            old = replaced(self._entities, Package, asked.namespace, name, overwrite=overwrite)
            package = build(FullName(asked.namespace, name), put, old, self._entities, self._settings)
            await self._catalogue.put(package)
        return json(shown(package))

    async def get(self, asked: Asked) -> Answer:
        name = FullName(asked.named, name_of(asked))
        packages = readable_package(self._entities, asked.namespace, name, f"{name.namespace}/{name.name}")
        provider, package = packages[0], packages[-1]
        contents = self._entities.contents(provider.namespace, provider.name)
        return json(shown_whole(replace(package, parameters=merged(packages)), contents))

    async def delete(self, asked: Asked) -> Answer:
        force = flag(asked.fields, "force")
        async with self._catalogue.writing(asked.namespace):
            package = find(self._entities, Package, asked.namespace, name_of(asked))
            contents = self._entities.contents(package.namespace, package.name)
            if contents and not force:
                count = "1 entity" if len(contents) == 1 else f"{len(contents)} entities"
                text = f"Package not empty (contains {count}). Set force param or delete package contents."
                raise Refusal(409, text)
            await self._catalogue.delete(*contents, package)
        return json(shown(package))

    async def list(self, asked: Asked) -> Answer:
        packages = self._entities.all(Package, asked.named)
        if asked.named != asked.namespace:
            packages = [package for package in packages if package.publish and package.binding is None]
        return listed(asked, "packages", packages, shown_in_list)
