"""What a sequence may be made of."""

from contextlib import suppress

from aliquot.live.catalogue.entities import Entities
from aliquot.live.catalogue.resolving import resolve_action
from aliquot.live.gateway.http.names import read_full_name
from aliquot.live.gateway.http.refusal import Refusal, malformed
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.records import SEQUENCE, Action, FullName, Package


def read_components(given: list[str] | None, caller: str) -> tuple[FullName, ...]:
    if given is None:
        raise malformed("'components' must be defined for sequence kind")
    return tuple(read_full_name(name, caller) for name in given)


def check_components(entities: Entities, name: FullName, components: tuple[FullName, ...], most: int) -> None:
    """Its owner may read them all, and inlined they are not too many. Raises a `Refusal`, or `AccessDeniedError`."""
    for component in components:
        with suppress(NotFoundError):  # told below: a sequence that is not there yet may name itself
            resolve_action(entities, name.namespace, component)
    if len(components) > most:
        raise _too_many()
    if not components:
        raise Refusal(400, "No component specified for the sequence.")
    _inline(entities, name, components, most)


def _inline(entities: Entities, name: FullName, components: tuple[FullName, ...], most: int) -> None:
    """Walk what would run. Whether a nested sequence may be read is a matter of whoever wrote it."""
    count = 0
    path = {name: iter(components)}  # the sequences we are in, outermost first
    while path:
        component = next(path[next(reversed(path))], None)
        if component is None:
            path.popitem()
            continue
        real = _behind_binding(entities, component)
        if real in path:
            raise Refusal(400, "Sequence may not refer to itself.")
        action = entities.one(Action, real.namespace, real.name)
        if action is None:
            raise Refusal(400, "Sequence component does not exist.")
        if action.exec.kind == SEQUENCE:
            path[real] = iter(action.exec.components)
            continue
        count += 1
        if count > most:
            raise _too_many()


def _behind_binding(entities: Entities, name: FullName) -> FullName:
    package = entities.one(Package, name.namespace, name.package) if name.package else None
    if package is None or package.binding is None:
        return name
    return FullName(package.binding.namespace, f"{package.binding.name}/{name.leaf}")


def _too_many() -> Refusal:
    return Refusal(400, "Too many actions in the sequence.")
