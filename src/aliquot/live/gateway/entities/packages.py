"""Endpoints for packages and bindings: create, update, read, list, delete."""

from typing import Any

from msgspec.structs import replace

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.entities import Entities
from aliquot.live.catalogue.names import is_name
from aliquot.live.catalogue.resolving import merge_parameters, readable_package
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import (
    OVERWRITE,
    PAGE,
    common_fields,
    common_view_fields,
    find,
    find_replaced,
    list_response,
    name_of,
    pair_views,
    updated_parameters,
)
from aliquot.live.gateway.entities.schedules import ActionSchedules
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.refusal import Refusal, malformed, not_found
from aliquot.live.gateway.http.routing import (
    Endpoint,
    EndpointAccess,
    Query,
    Request,
    Response,
    json_response,
    read_json,
)
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.errors import NotFoundError, WrongCollectionError
from aliquot.live.store.records import Action, FullName, Package, Pair

_ALL = "/api/v1/namespaces/{namespace}/packages"
_ONE = _ALL + "/{name}"
_RESERVED = "default"


class PackageEndpoints:
    """Handles requests for packages and bindings."""

    def __init__(self, catalogue: Catalogue, settings: GatewaySettings, schedules: ActionSchedules) -> None:
        self._schedules = schedules
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        force = Query("force", bool, "delete the actions in it, too")
        items = list[wire.PackageItem] | wire.PackageCount
        item = {200: wire.PackageView}
        published = EndpointAccess.PUBLISHED
        return [
            Endpoint("GET", _ALL, self.list, "List packages, or another namespace's published ones", {200: items},
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
            old = find_replaced(self._entities, Package, request.namespace, name, overwrite=overwrite)
            package = build_package(FullName(request.namespace, name), put, old, self._entities, self._settings)
            await self._catalogue.put(package)
        return json_response(package_view(package))

    async def get(self, request: Request) -> Response:
        name = FullName(request.named, name_of(request))
        shown = f"{name.namespace}/{name.name}"
        try:
            packages = readable_package(self._entities, request.namespace, name, shown)
        except WrongCollectionError:
            raise
        except NotFoundError as error:
            raise not_found(shown) from error
        provider, package = packages[0], packages[-1]
        contents = self._entities.contents(provider.namespace, provider.name)
        return json_response(
            package_view_with_contents(replace(package, parameters=merge_parameters(packages)), contents)
        )

    async def delete(self, request: Request) -> Response:
        force = flag(request.fields, "force")
        async with self._catalogue.writing(request.namespace):
            package = find(self._entities, Package, request.namespace, name_of(request))
            contents = self._entities.contents(package.namespace, package.name)
            if contents and not force:
                count = "1 entity" if len(contents) == 1 else f"{len(contents)} entities"
                text = f"Package not empty (contains {count}). Set force param or delete package contents."
                raise Refusal(409, text)
            for action in contents:
                await self._schedules.remove(action)
            await self._catalogue.delete(*contents, package)
        return json_response(package_view(package))

    async def list(self, request: Request) -> Response:
        packages = self._entities.all(Package, request.named)
        if request.named != request.namespace:
            packages = [package for package in packages if package.publish and package.binding is None]
        return list_response(request, "packages", packages, package_item)


BINDING = "binding"


def build_package(
    name: FullName, put: wire.PackagePut, old: Package | None, entities: Entities, settings: GatewaySettings
) -> Package:
    """Return the package after the PUT.

    Raises a `Refusal`, or `AccessDeniedError` if the caller may not read the package that it binds.
    """
    binding = _binding(name.namespace, put.binding)
    if binding is not None:
        if old is not None and old.binding is None:
            raise Refusal(409, "Resource is a package and cannot be converted into a binding.")
        _check_bindable(name.namespace, binding, entities)
    elif old is not None:
        binding = old.binding
    fields = common_fields(put, old, settings)
    fields["annotations"] = _annotated(fields["annotations"], binding)
    parameters = updated_parameters(put.parameters, old.parameters if old else (), settings)
    return Package(namespace=name.namespace, name=name.name, binding=binding, parameters=parameters, **fields)


def _binding(caller: str, put: wire.BindingPut | None) -> FullName | None:
    if put is None or (put.namespace is None and put.name is None):
        return None
    namespace = caller if put.namespace == "_" else put.namespace
    if namespace is None or put.name is None or not is_name(namespace) or not is_name(put.name):
        raise malformed("binding: it takes a namespace and the name of a package")
    return FullName(namespace, put.name)


def _check_bindable(caller: str, binding: FullName, entities: Entities) -> None:
    try:
        packages = readable_package(entities, caller, binding, f"{binding.namespace}/{binding.name}")
    except WrongCollectionError as error:
        raise Refusal(409, "Cannot bind to a resource that is not a package.") from error
    except NotFoundError as error:
        raise Refusal(400, "Binding references a package that does not exist.") from error
    if len(packages) > 1:
        raise Refusal(400, "Cannot bind to another package binding.")


def _annotated(annotations: tuple[Pair, ...], binding: FullName | None) -> tuple[Pair, ...]:
    """Set or remove the annotation `binding`, by which clients tell bindings from packages in lists."""
    own = tuple(pair for pair in annotations if pair.key != BINDING)
    if binding is None:
        return own
    return (*own, Pair(BINDING, {"namespace": binding.namespace, "name": binding.name}))


# --- views ---------------------------------------------------------------------------------------------------


def package_view(package: Package) -> wire.PackageView:
    return wire.PackageView(**_view_fields(package))


def package_view_with_contents(package: Package, contents: list[Action]) -> wire.PackageView:
    """Return the view with the package's actions and feeds. A feed is an action with the annotation `feed`."""
    actions: list[wire.PackageActionView] = []
    feeds: list[wire.PackageActionView] = []
    for action in sorted(contents, key=lambda action: action.name):
        item = wire.PackageActionView(action.full_name.leaf, action.version, pair_views(action.annotations))
        (feeds if any(pair.key == "feed" for pair in action.annotations) else actions).append(item)
    return wire.PackageView(**_view_fields(package), actions=actions, feeds=feeds)


def package_item(package: Package) -> wire.PackageItem:
    binding = package.binding is not None and _binding_view(package.binding)
    return wire.PackageItem(**common_view_fields(package), binding=binding)


def _view_fields(package: Package) -> dict[str, Any]:
    binding = wire.BindingView() if package.binding is None else _binding_view(package.binding)
    return {**common_view_fields(package), "binding": binding, "parameters": pair_views(package.parameters)}


def _binding_view(binding: FullName) -> wire.BindingView:
    return wire.BindingView(binding.namespace, binding.name)
