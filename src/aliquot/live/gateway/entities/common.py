"""Functions that the endpoints of all entities share: lookups, versions, annotations, parameters, views, lists."""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from aliquot.clock import now_ms
from aliquot.live.catalogue.entities import Entities
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.http.names import check_name
from aliquot.live.gateway.http.query import MAX_SKIP, page_of
from aliquot.live.gateway.http.refusal import ELSEWHERE, EXISTS, Refusal, malformed, not_found, too_large
from aliquot.live.gateway.http.routing import Query, Request, Response, json_response
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.records import Action, Entity, Package, Pair, Rule, Trigger

OVERWRITE = Query("overwrite", bool, "update the entity if it exists")
PAGE = (
    Query("limit", Annotated[int, Meta(ge=0, le=200)], "maximum number of items, 0 to 200; 0 stands for 200"),
    Query("skip", Annotated[int, Meta(ge=0, le=MAX_SKIP)], "number of items to skip"),
    Query("count", bool, "respond with the number of items only"),
)
_VERSION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?", re.ASCII)
E = TypeVar("E", Action, Package, Trigger, Rule)


def name_of(request: Request) -> str:
    """Return the entity's checked name from the path, as `name` or `package/name`."""
    return "/".join(check_name(name) for name in request.names.values())


# --- lookups -------------------------------------------------------------------------------------------------


def find_optional(entities: Entities, kind: type[E], namespace: str, name: str) -> E | None:
    """Return the entity, or None if the name is free. Raises a 409 if an entity of another kind has the name."""
    found = entities.any(namespace, name)
    if found is not None and not isinstance(found, kind):
        raise Refusal(409, ELSEWHERE)
    return found


def find(entities: Entities, kind: type[E], namespace: str, name: str) -> E:
    found = find_optional(entities, kind, namespace, name)
    if found is None:
        raise not_found()
    return found


def find_replaced(entities: Entities, kind: type[E], namespace: str, name: str, *, overwrite: bool) -> E | None:
    """Return the entity that a PUT updates, or None if it creates one. Raises a 409 if it may do neither."""
    old = find_optional(entities, kind, namespace, name)
    if old is not None and not overwrite:
        raise Refusal(409, EXISTS)
    return old


# --- updates -------------------------------------------------------------------------------------------------


def common_fields(put: wire.EntityPut, old: Entity | None, settings: GatewaySettings) -> dict[str, Any]:
    """Return the fields that every entity has, after a PUT. Absent fields keep their old value."""
    annotations = old.annotations if old else ()
    if put.annotations is not None:
        annotations = check_size("annotations", annotation_pairs(put.annotations), settings)
    return {
        "version": next_version(put.version, old.version if old else None),
        "publish": put.publish if put.publish is not None else bool(old and old.publish),
        "annotations": annotations,
        "updated": now_ms(),
    }


def updated_parameters(
    put: list[wire.PairPut] | None, old: tuple[Pair, ...], settings: GatewaySettings
) -> tuple[Pair, ...]:
    return old if put is None else check_size("parameters", parameter_pairs(put), settings)


def parameter_pairs(put: list[wire.PairPut]) -> tuple[Pair, ...]:
    return tuple({pair.key: Pair(pair.key, pair.value, bool(pair.init)) for pair in put}.values())


def annotation_pairs(put: list[wire.PairPut]) -> tuple[Pair, ...]:
    """Return annotations without `init`, which only parameters have."""
    return tuple({pair.key: Pair(pair.key, pair.value) for pair in put}.values())


def check_size(field: str, given: tuple[Pair, ...], settings: GatewaySettings) -> tuple[Pair, ...]:
    size = sum(len(pair.key.encode()) + len(msgspec.json.encode(pair.value)) for pair in given)
    if size > settings.parameters_bytes:
        raise too_large(field, size, settings.parameters_bytes)
    return given


def next_version(given: str | None, old: str | None) -> str:
    if given is not None:
        match = _VERSION.fullmatch(given.strip())
        if match is None or not any(int(part or 0) for part in match.groups()):
            raise malformed(f"bad semantic version {given}")
        return ".".join(str(int(part or 0)) for part in match.groups())
    if old is None:
        return "0.0.1"
    major, minor, patch = old.split(".")
    return f"{major}.{minor}.{int(patch) + 1}"


# --- views ---------------------------------------------------------------------------------------------------


def common_view_fields(entity: Entity) -> dict[str, Any]:
    package, _, name = entity.name.rpartition("/")
    return {
        "namespace": f"{entity.namespace}/{package}" if package else entity.namespace,
        "name": name,
        "version": entity.version,
        "publish": entity.publish,
        "annotations": pair_views(entity.annotations),
        "updated": entity.updated,
    }


def pair_views(parameter_pairs: Iterable[Pair]) -> list[wire.PairView]:
    return [wire.PairView(pair.key, pair.value, pair.init or msgspec.UNSET) for pair in parameter_pairs]


def list_response(request: Request, collection: str, entities: list[E], show: Callable[[E], object]) -> Response:
    """Return one page of these entities, newest first, or their number. `entities` are in the order of their writes."""
    page = page_of(request.fields, collection)
    if page.count:
        return json_response({collection: max(0, len(entities) - page.skip)})
    newest = sorted(entities, key=lambda entity: entity.updated)
    newest.reverse()
    return json_response([show(entity) for entity in newest[page.skip : page.skip + page.limit]])
