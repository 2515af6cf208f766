"""A package or binding from what was put, and as it is shown."""

from typing import Any

from aliquot.live.catalogue.entities import Entities
from aliquot.live.catalogue.names import is_name
from aliquot.live.catalogue.resolving import readable_package
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import common, parameters_of, shown_common, shown_pairs
from aliquot.live.gateway.http.refusal import Refusal, malformed
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.errors import NotFoundError, WrongCollectionError
from aliquot.live.store.records import Action, FullName, Package, Pair

BINDING = "binding"


def build(
    name: FullName, put: wire.PackagePut, old: Package | None, entities: Entities, settings: GatewaySettings
) -> Package:
    """The package after the PUT. Raises a `Refusal`, or `AccessDeniedError` when it binds what is another's."""
    binding = _binding(name.namespace, put.binding)
    if binding is not None:
        if old is not None and old.binding is None:
            raise Refusal(409, "Resource is a package and cannot be converted into a binding.")
        _check_bindable(name.namespace, binding, entities)
    elif old is not None:
        binding = old.binding
    fields = common(put, old, settings)
    fields["annotations"] = _annotated(fields["annotations"], binding)
    parameters = parameters_of(put.parameters, old.parameters if old else (), settings)
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
    """The annotation `binding` is the platform's: whoever lists packages can tell by it which are bindings."""
    own = tuple(pair for pair in annotations if pair.key != BINDING)
    if binding is None:
        return own
    return (*own, Pair(BINDING, {"namespace": binding.namespace, "name": binding.name}))


# --- as shown ------------------------------------------------------------------------------------------------


def shown(package: Package) -> wire.PackageView:
    return wire.PackageView(**_fields(package))


def shown_whole(package: Package, contents: list[Action]) -> wire.PackageView:
    """With what is in it: feeds are actions that are annotated so."""
    actions: list[wire.PackageActionView] = []
    feeds: list[wire.PackageActionView] = []
    for action in sorted(contents, key=lambda action: action.name):
        item = wire.PackageActionView(action.full_name.leaf, action.version, shown_pairs(action.annotations))
        (feeds if any(pair.key == "feed" for pair in action.annotations) else actions).append(item)
    return wire.PackageView(**_fields(package), actions=actions, feeds=feeds)


def shown_in_list(package: Package) -> wire.PackageItem:
    binding = package.binding is not None and _shown_binding(package.binding)
    return wire.PackageItem(**shown_common(package), binding=binding)


def _fields(package: Package) -> dict[str, Any]:
    binding = wire.BindingView() if package.binding is None else _shown_binding(package.binding)
    return {**shown_common(package), "binding": binding, "parameters": shown_pairs(package.parameters)}


def _shown_binding(binding: FullName) -> wire.BindingView:
    return wire.BindingView(binding.namespace, binding.name)
