"""Endpoints for datasets: add, remove and evict for the operator, list, read and warm for tenants."""

import asyncio
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from aliquot.clock import now_ms
from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.live.catalogue.catalogue import Catalogue, NameTakenError
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.datasets.agent_requests import AgentError, AgentLostError
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.datasets.registry import check_dataset
from aliquot.live.gateway.http.events import ResponseLimits, wants_events
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.routing import (
    Endpoint,
    EndpointAccess,
    Query,
    Request,
    Response,
    json_response,
    read_json,
)
from aliquot.live.gateway.resources.warming import OPERATOR, DatasetWarming, WarmingLimiter, WarmPost, WarmResult
from aliquot.live.store.records import Action
from aliquot.storage.addresses import redact_for_tenants, without_secrets
from aliquot.storage.records import Dataset

_ALL, _ONE = "/operator/v1/datasets", "/operator/v1/datasets/{dataset}"
_SEEN, _SEEN_ONE = "/api/v1/datasets", "/api/v1/datasets/{dataset}"
_Url: TypeAlias = Annotated[str, Meta(extra_json_schema={"examples": ["s3://bucket/folder", "/srv/data"]})]
_ORIGIN_TIMEOUT_S = 30  # with origins
_SKIP_HINT = "(--no-check or check=false adds it all the same)"
_MAX_NAMED_USERS = 5  # functions that an error message lists


class DatasetPut(Struct, forbid_unknown_fields=True):
    url: _Url
    options: dict[str, str] = {}  # options of the origin, never shown again
    namespaces: list[str] | UnsetType | None = UNSET  # namespaces that see it; absent or null: all


class DatasetItem(Struct):
    """A dataset as tenants see it, without its address."""

    name: str
    origin: str  # kind of origin: file, s3, https, rsync …
    created: int


class DatasetEntity(DatasetItem):
    """A dataset with its size. Null means unknown."""

    files: int | None
    bytes: int | None
    cached_files: int | None
    cached_bytes: int | None
    trouble: str | None = None  # why the sizes are not known


class OperatorDataset(DatasetItem):
    url: str  # without secrets
    options: list[str]  # names of the options
    namespaces: list[str] | None


class OperatorDatasetEntity(OperatorDataset):
    functions: list[str]  # functions that use it
    files: int | None
    bytes: int | None
    cached_files: int | None
    cached_bytes: int | None
    trouble: str | None = None


class EvictResult(Struct):
    """The files that were evicted from the node."""

    files: int
    bytes: int


class DatasetEndpoints:
    """Handles requests for datasets."""

    def __init__(self, fabric: Fabric, catalogue: Catalogue, responses: ResponseLimits) -> None:
        self._fabric = fabric
        self._datasets = fabric.datasets
        self._catalogue = catalogue
        self._responses = responses
        self._warming_limiter = WarmingLimiter()

    def endpoints(self) -> list[Endpoint]:
        op: dict[str, Any] = {"access": EndpointAccess.OPERATOR}
        checked = Query("check", bool, "false: do not check that its origin can be opened and listed")
        force = Query("force", bool, "remove it even if functions use it; they will fail")
        warm: dict[str, Any] = {"body": WarmPost, "max_bytes": MIB, "streams": True}
        return [
            Endpoint("GET", _ALL, self.list_all, "All datasets", {200: list[OperatorDataset]}, **op),
            Endpoint("PUT", _ONE, self.put, "Add a dataset, or change it", {200: OperatorDataset}, body=DatasetPut,
                     query=(checked,), max_bytes=MIB, statuses=(413, 415), **op),
            Endpoint("GET", _ONE, self.get, "Read a dataset", {200: OperatorDatasetEntity}, statuses=(404,), **op),
            Endpoint("DELETE", _ONE, self.remove, "Remove a dataset; its files at the origin stay",
                     {200: OperatorDataset}, query=(force,), statuses=(404, 409), **op),
            Endpoint("POST", _ONE + "/evict", self.evict, "Evict its files from the node", {200: EvictResult},
                     statuses=(404, 424), **op),
            Endpoint("POST", _ONE + "/warm", self.warm_any, "Fetch its files to the node", {200: WarmResult},
                     statuses=(404, 413, 415, 424), **warm, **op),
            Endpoint("GET", _SEEN, self.list_seen, "The datasets that the caller's functions may use",
                     {200: list[DatasetItem]}),
            Endpoint("GET", _SEEN_ONE, self.get_seen, "Read a dataset, with the size of its part on the node",
                     {200: DatasetEntity}, statuses=(404,)),
            Endpoint("POST", _SEEN_ONE + "/warm", self.warm, "Fetch its files to the node", {200: WarmResult},
                     statuses=(404, 413, 415, 424, 429), **warm),
        ]  # fmt: skip

    # --- for the operator ---------------------------------------------------------------------------------

    async def list_all(self, _: Request) -> Response:
        return json_response([OperatorDataset(**_common(one)) for one in self._datasets.all()])

    async def put(self, request: Request) -> Response:
        put: DatasetPut = read_json(request.body or b"{}", DatasetPut)
        tenants = None if put.namespaces is UNSET or put.namespaces is None else tuple(dict.fromkeys(put.namespaces))
        created = now_ms()
        dataset = Dataset(request.names["dataset"], put.url, put.options, tenants, created)
        check_dataset(dataset)
        self._check_namespaces(tenants or ())
        if flag(request.fields, "check", default=True):
            await self._check_origin(dataset)
        await self._fabric.wait_until_removed(dataset.name)
        return json_response(OperatorDataset(**_common(await self._datasets.put(dataset))))

    async def get(self, request: Request) -> Response:
        dataset = self._datasets.find(request.names["dataset"])
        sizes = await self._sizes(dataset)
        return json_response(OperatorDatasetEntity(**_common(dataset), functions=self._users(dataset.name), **sizes))

    async def remove(self, request: Request) -> Response:
        dataset = self._datasets.find(request.names["dataset"])
        force = flag(request.fields, "force")
        users = self._users(dataset.name)
        if users and not force:
            more = f" and {len(users) - _MAX_NAMED_USERS} more" if len(users) > _MAX_NAMED_USERS else ""
            raise NameTakenError(
                f"functions use it: {', '.join(users[:_MAX_NAMED_USERS])}{more}; "
                "change or delete them, or remove it with force: then they fail"
            )
        removed = await self._datasets.remove(dataset.name)
        await self._fabric.wait_until_removed(dataset.name)
        return json_response(OperatorDataset(**_common(removed)))

    async def evict(self, request: Request) -> Response:
        dataset = self._datasets.find(request.names["dataset"])
        return json_response(msgspec.convert(await self._fabric.evict(dataset.name), EvictResult))

    async def warm_any(self, request: Request) -> Response:
        return await self._warm(request, self._datasets.find(request.names["dataset"]), OPERATOR)

    async def _check_origin(self, dataset: Dataset) -> None:
        try:
            async with asyncio.timeout(_ORIGIN_TIMEOUT_S):
                await self._fabric.check(dataset)
        except AgentLostError:
            raise
        except TimeoutError as error:
            raise InputError(f"url: the origin has not answered for {_ORIGIN_TIMEOUT_S} s {_SKIP_HINT}") from error
        except AgentError as error:
            raise InputError(f"url: {error} {_SKIP_HINT}") from error

    def _check_namespaces(self, names: tuple[str, ...]) -> None:
        for name in names:
            if self._catalogue.namespace(name) is None:
                known = ", ".join(one.name for one in self._catalogue.namespaces())
                raise InputError(f"namespaces: there is no namespace '{name[:100]}'; there are {known}")

    def _users(self, name: str) -> list[str]:
        """Return the functions that use this dataset."""
        entities = self._catalogue.entities
        return [
            f"/{action.namespace}/{action.name}"
            for namespace in self._catalogue.namespaces()
            for action in entities.all(Action, namespace.name)
            if action.annotation("datasets") and name in parse_needs(action).datasets
        ]

    # --- for tenants --------------------------------------------------------------------------------------

    async def list_seen(self, request: Request) -> Response:
        return json_response([_item(one) for one in self._datasets.shown_to(request.namespace)])

    async def get_seen(self, request: Request) -> Response:
        dataset = self._datasets.find_shown(request.namespace, request.names["dataset"])
        sizes = await self._sizes(dataset)
        if sizes["trouble"] is not None:
            sizes["trouble"] = redact_for_tenants(sizes["trouble"], dataset)
        return json_response(DatasetEntity(dataset.name, _origin(dataset), dataset.created, **sizes))

    async def warm(self, request: Request) -> Response:
        dataset = self._datasets.find_shown(request.namespace, request.names["dataset"])
        return await self._warm(request, dataset, request.namespace)

    # --- for both -----------------------------------------------------------------------------------------

    async def _warm(self, request: Request, dataset: Dataset, owner: str) -> Response:
        post: WarmPost = read_json(request.body or b"{}", WarmPost)
        warming = DatasetWarming(self._fabric, dataset, post, self._warming_limiter.begin(owner))
        if wants_events(request.headers.get(b"accept")):
            return Response(200, b"", events=warming.events(self._responses, owner, request.transaction))
        return json_response(await warming.done())

    async def _sizes(self, dataset: Dataset) -> dict[str, Any]:
        """Return the sizes that the agent knows, or the reason why it does not."""
        fields = ("files", "bytes", "cached_files", "cached_bytes")
        try:
            async with asyncio.timeout(_ORIGIN_TIMEOUT_S):
                known: dict[str, Any] = dict(await self._fabric.show(dataset.name))
        except AgentError as error:
            known = {"trouble": str(error)}
        except TimeoutError:
            known = {"trouble": "its files are still being listed; look again later"}
        return {field: known.get(field) for field in fields} | {"trouble": known.get("trouble")}


def _origin(dataset: Dataset) -> str:
    scheme, separator, _ = dataset.url.partition("://")
    return scheme if separator else "file" if dataset.url.startswith("/") else "rsync"


def _item(dataset: Dataset) -> DatasetItem:
    return DatasetItem(dataset.name, _origin(dataset), dataset.created)


def _common(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "origin": _origin(dataset),
        "created": dataset.created,
        "url": without_secrets(dataset.url),
        "options": sorted(dataset.options),
        "namespaces": None if dataset.tenants is None else list(dataset.tenants),
    }
