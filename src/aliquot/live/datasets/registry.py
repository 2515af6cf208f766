"""The registry of datasets that the operator has added, and of the namespaces that see them."""

import asyncio
import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.live.store.base import Delete, Document, DocumentChange, Put, Store
from aliquot.live.store.errors import NotFoundError
from aliquot.storage.records import Dataset

COLLECTION = "datasets"
DATASET_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_NAME = re.compile(DATASET_NAME)
# A path, a URL (fsspec chains URLs with `::`), or rsync's forms host:path and host::module.
_URL = re.compile(r"/.*|[a-z][a-z0-9+.-]*(::[a-z][a-z0-9+.-]*)*://.+|[^/:\s]+::?[^:].*")
_MAX_TEXT_LENGTH = 4096  # characters of an address, and of an option's name or value
_MAX_OPTIONS = 64
OnDatasetChange = Callable[[Dataset | None, Dataset | None], None]  # called with the old and the new record


class DatasetRegistry:
    """Datasets in memory and in the store. A change is durable before it is visible.

    It implements the catalogue's `NamespaceData`. A deleted namespace is removed from the datasets that were shown to
    it, so that a later namespace of the same name does not see them.
    """

    def __init__(self, store: Store, on_change: OnDatasetChange | None = None) -> None:
        self._store = store
        self._by_name: dict[str, Dataset] = {}
        self._writing = asyncio.Lock()
        self._on_change = on_change

    async def load(self) -> None:
        """Load the datasets from the store. Called at start."""
        for document in await self._store.scan(COLLECTION):
            dataset = msgspec.json.decode(document.body, type=Dataset)
            self._by_name[dataset.name] = dataset

    # --- reading ------------------------------------------------------------------------------------------

    def all(self) -> list[Dataset]:
        return [self._by_name[name] for name in sorted(self._by_name)]

    def find(self, name: str) -> Dataset:
        """Return a dataset. Raises `NotFoundError`."""
        if (found := self._by_name.get(name)) is None:
            raise NotFoundError(f"dataset {name}")
        return found

    def shown_to(self, tenant: str) -> list[Dataset]:
        return [dataset for dataset in self.all() if dataset.is_shown_to(tenant)]

    def is_shown(self, tenant: str, name: str) -> bool:
        found = self._by_name.get(name)
        return found is not None and found.is_shown_to(tenant)

    def find_shown(self, tenant: str, name: str) -> Dataset:
        """Return a dataset that the tenant sees.

        Raises `NotFoundError`, too, if only others see it, so that its existence stays hidden.
        """
        found = self.find(name)
        if not found.is_shown_to(tenant):
            raise NotFoundError(f"dataset {name}")
        return found

    def reason_unavailable(self, tenant: str, names: Sequence[str]) -> str | None:
        """Return why the tenant cannot use these datasets, or None if it can."""
        shown = [dataset.name for dataset in self.shown_to(tenant)]
        for name in names:
            if name not in shown:
                there = f"there are {', '.join(shown)}" if shown else "there are none; the operator adds them"
                return f"annotation datasets: there is no dataset '{name}' for namespace {tenant}; {there}"
        return None

    # --- writing ------------------------------------------------------------------------------------------

    async def put(self, dataset: Dataset) -> Dataset:
        """Add or replace a dataset. Durable. A replaced one keeps its time of creation."""
        async with self._writing:
            old = self._by_name.get(dataset.name)
            new = dataset if old is None else replace(dataset, created=old.created)
            if old != new:
                await self._write([_put(new)], lambda: self._set(old, new))
        return new

    async def remove(self, name: str) -> Dataset:
        """Remove a dataset and return it. Durable. Raises `NotFoundError`."""
        async with self._writing:
            old = self.find(name)
            await self._write([Delete(COLLECTION, "", name)], lambda: self._set(old, None))
        return old

    async def _write(self, changes: list[DocumentChange], update_memory: Callable[[], None]) -> None:
        """Change the store, then memory. It is shielded, so that a cancelled caller cannot leave them different."""

        async def write() -> None:
            await self._store.apply(changes)
            update_memory()

        await asyncio.shield(write())

    def _set(self, old: Dataset | None, new: Dataset | None) -> None:
        if new is not None:
            self._by_name[new.name] = new
        elif old is not None:
            del self._by_name[old.name]
        if self._on_change is not None:
            self._on_change(old, new)

    # --- NamespaceData ------------------------------------------------------------------------------------

    def deletions(self, namespace: str) -> list[DocumentChange]:
        """Return the changes that remove the namespace from every dataset."""
        return [_put(new) for _, new in self._without(namespace)]

    def forget(self, namespace: str) -> None:
        """Remove the namespace from every dataset in memory."""
        for old, new in self._without(namespace):
            self._set(old, new)

    def _without(self, namespace: str) -> list[tuple[Dataset, Dataset]]:
        return [
            (dataset, replace(dataset, tenants=tuple(name for name in dataset.tenants if name != namespace)))
            for dataset in self.all()
            if dataset.tenants is not None and namespace in dataset.tenants
        ]


def _put(dataset: Dataset) -> Put:
    return Put(COLLECTION, Document("", dataset.name, msgspec.json.encode(dataset)))


def check_dataset(dataset: Dataset) -> None:
    """Check a dataset's fields. Raises an `InputError` that names the field and what it takes."""
    if not _NAME.fullmatch(dataset.name):
        raise InputError(
            f"name: '{dataset.name[:100]}' cannot name a dataset; it takes letters, digits and . _ -, at most 100, "
            "a letter or digit first"
        )
    url = dataset.url
    if not _URL.fullmatch(url) or not url.isprintable() or len(url) > _MAX_TEXT_LENGTH:
        raise InputError(
            "url: it takes an absolute path on the server's machine, or an address such as s3://bucket/folder, "
            "https://host/folder, rsync://host/module/folder, or host:/folder for rsync over SSH"
        )
    options = dataset.options
    if len(options) > _MAX_OPTIONS or any(
        max(len(key), len(value)) > _MAX_TEXT_LENGTH for key, value in options.items()
    ):
        raise InputError(
            f"options: it takes at most {_MAX_OPTIONS} texts of at most {_MAX_TEXT_LENGTH} characters each"
        )
    if not all(key.isprintable() and key for key in options):
        raise InputError("options: a name is empty, or holds what cannot be printed; it takes such as anon or key")
