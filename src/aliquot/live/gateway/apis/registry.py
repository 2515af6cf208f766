"""The APIs of all namespaces, in memory and in the store. A write is durable before it takes effect."""

import asyncio

import msgspec
from msgspec import Struct

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway.apis.documents import Document
from aliquot.live.gateway.apis.routes import RouteTable
from aliquot.live.store.base import Delete, DocumentChange, Store
from aliquot.live.store.base import Document as Stored

COLLECTION = "apis"


class Api(Struct, frozen=True):
    """An API of a namespace, as it is stored."""

    namespace: str
    document: Document
    since: int  # creation time of its namespace, which tells it from a later namespace of the same name

    @property
    def base_path(self) -> str:
        return str(self.document["basePath"])


class ApiRegistry:
    """Stores the APIs of all namespaces, and caches their route tables."""

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue
        self._by_namespace: dict[str, dict[str, Api]] = {}
        self._routes: dict[str, RouteTable] = {}
        self._loading = asyncio.Lock()
        self._loaded = False
        catalogue.add_namespace_data(self)

    async def load(self) -> None:
        """Load all APIs once, and delete those of deleted namespaces."""
        async with self._loading:
            if self._loaded:
                return
            for stored in await self._store.scan(COLLECTION):
                api = msgspec.json.decode(stored.body, type=Api)
                if self._is_current(api):
                    self._by_namespace.setdefault(api.namespace, {})[api.base_path] = api
                else:
                    await self._store.delete(COLLECTION, stored.namespace, stored.name)
            self._loaded = True

    async def all(self, namespace: str) -> list[Api]:
        """Return the namespace's APIs, sorted by base path."""
        if not self._loaded:
            await self.load()
        found = self._by_namespace.get(namespace, {})
        return [found[path] for path in sorted(found) if self._is_current(found[path])]

    async def find(self, namespace: str, base_path_or_title: str) -> Api | None:
        by_path = base_path_or_title.startswith("/")
        for api in await self.all(namespace):
            if base_path_or_title == (api.base_path if by_path else api.document["info"].get("title")):
                return api
        return None

    async def routes(self, namespace: str) -> RouteTable | None:
        """Return the namespace's route table, or None if it has no APIs or does not exist."""
        apis = await self.all(namespace)
        if not apis:
            return None
        found = self._routes.get(namespace)
        if found is None:
            found = self._routes[namespace] = RouteTable([api.document for api in apis])
        return found

    async def put(self, namespace: str, document: Document) -> Api:
        """Store the API. It is durable on return. Call this within the catalogue's `writing`."""
        owner = self._catalogue.namespace(namespace)
        api = Api(namespace, document, owner.created if owner else 0)
        RouteTable([document])  # raises if the document cannot be served

        async def write() -> None:
            await self._store.put(COLLECTION, Stored(namespace, api.base_path, msgspec.json.encode(api)))
            self._by_namespace.setdefault(namespace, {})[api.base_path] = api
            self._routes.pop(namespace, None)

        await asyncio.shield(write())
        return api

    async def delete(self, api: Api) -> None:
        """Delete the API. Call this within the catalogue's `writing`."""

        async def write() -> None:
            await self._store.delete(COLLECTION, api.namespace, api.base_path)
            self._by_namespace.get(api.namespace, {}).pop(api.base_path, None)
            self._routes.pop(api.namespace, None)

        await asyncio.shield(write())

    # --- when a namespace is deleted ----------------------------------------------------------------------

    def deletions(self, namespace: str) -> list[DocumentChange]:
        return [Delete(COLLECTION, namespace, path) for path in self._by_namespace.get(namespace, ())]

    def forget(self, namespace: str) -> None:
        self._by_namespace.pop(namespace, None)
        self._routes.pop(namespace, None)

    def _is_current(self, api: Api) -> bool:
        owner = self._catalogue.namespace(api.namespace)
        return owner is not None and owner.created == api.since
