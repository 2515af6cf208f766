"""What all entities have in common over HTTP: versions, annotations, parameters, lists, collisions of names."""

import re
import time
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from aliquot.live.catalogue.entities import Entities
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.http.names import check_name
from aliquot.live.gateway.http.query import MAX_SKIP, page_of
from aliquot.live.gateway.http.refusal import ELSEWHERE, EXISTS, Refusal, malformed, not_found, too_large
from aliquot.live.gateway.http.routing import Query, Request, Response, json_response
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.records import Action, Entity, Package, Pair, Rule, Trigger

OVERWRITE = Query("overwrite", bool, "update it if it is there")
PAGE = (
    Query("limit", Annotated[int, Meta(ge=0, le=200)], "at most so many, 0 to 200; 0 stands for 200"),
    Query("skip", Annotated[int, Meta(ge=0, le=MAX_SKIP)], "leave out the first so many"),
    Query("count", bool, "only how many there are"),
)
_VERSION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?", re.ASCII)
E = TypeVar("E", Action, Package, Trigger, Rule)


def name_of(request: Request) -> str:
    """`name`, or `package/name`."""
    return "/".join(check_name(name) for name in request.names.values())


# --- what is there -------------------------------------------------------------------------------------------


def existing(entities: Entities, kind: type[E], namespace: str, name: str) -> E | None:
    """None when the name is free; a 409 when something of another collection has it."""
    found = entities.any(namespace, name)
    if found is not None and not isinstance(found, kind):
        raise Refusal(409, ELSEWHERE)
    return found


def find(entities: Entities, kind: type[E], namespace: str, name: str) -> E:
    found = existing(entities, kind, namespace, name)
    if found is None:
        raise not_found()
    return found


def replaced(entities: Entities, kind: type[E], namespace: str, name: str, *, overwrite: bool) -> E | None:
    """What a PUT updates, None when it creates; a 409 when it may do neither."""
    old = existing(entities, kind, namespace, name)
    if old is not None and not overwrite:
        raise Refusal(409, EXISTS)
    return old


# --- what was put --------------------------------------------------------------------------------------------


def common(put: wire.EntityPut, old: Entity | None, settings: GatewaySettings) -> dict[str, Any]:
    """The fields of every entity after a PUT; what is absent keeps its old value."""
    annotations = old.annotations if old else ()
    if put.annotations is not None:
        annotations = checked("Annotations", plain(put.annotations), settings)
    return {
        "version": next_version(put.version, old.version if old else None),
        "publish": put.publish if put.publish is not None else bool(old and old.publish),
        "annotations": annotations,
        "updated": time.time_ns() // 1_000_000,
    }


def parameters_of(put: list[wire.PairPut] | None, old: tuple[Pair, ...], settings: GatewaySettings) -> tuple[Pair, ...]:
    return old if put is None else checked("Parameters", pairs(put), settings)


def pairs(put: list[wire.PairPut]) -> tuple[Pair, ...]:
    return tuple({pair.key: Pair(pair.key, pair.value, bool(pair.init)) for pair in put}.values())


def plain(put: list[wire.PairPut]) -> tuple[Pair, ...]:
    """Annotations: those for the environment are parameters only."""
    return tuple({pair.key: Pair(pair.key, pair.value) for pair in put}.values())


def checked(field: str, given: tuple[Pair, ...], settings: GatewaySettings) -> tuple[Pair, ...]:
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


# --- as shown ------------------------------------------------------------------------------------------------


def shown_common(entity: Entity) -> dict[str, Any]:
    package, _, name = entity.name.rpartition("/")
    return {
        "namespace": f"{entity.namespace}/{package}" if package else entity.namespace,
        "name": name,
        "version": entity.version,
        "publish": entity.publish,
        "annotations": shown_pairs(entity.annotations),
        "updated": entity.updated,
    }


def shown_pairs(pairs: Iterable[Pair]) -> list[wire.PairView]:
    return [wire.PairView(pair.key, pair.value, pair.init or msgspec.UNSET) for pair in pairs]


def listed(request: Request, collection: str, entities: list[E], show: Callable[[E], object]) -> Response:
    """One page of them, newest first, or how many there are. They come in the order in which they were written."""
    page = page_of(request.fields, collection)
    if page.count:
        return json_response({collection: max(0, len(entities) - page.skip)})
    newest = sorted(entities, key=lambda entity: entity.updated)
    newest.reverse()
    return json_response([show(entity) for entity in newest[page.skip : page.skip + page.limit]])
