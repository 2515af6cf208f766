"""Parse and check the components of a sequence."""

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


def check_components(entities: Entities, name: FullName, components: tuple[FullName, ...], max_length: int) -> None:
    """Check that the owner may read all components, and that the sequence is not too long with nested ones inlined.

    Raises a `Refusal`, or `AccessDeniedError`.
    """
    for component in components:
        with suppress(NotFoundError):  # `_inline` refuses it, and a new sequence that names itself gets another text
            resolve_action(entities, name.namespace, component)
    if len(components) > max_length:
        raise _too_many()
    if not components:
        raise Refusal(400, "No component specified for the sequence.")
    _inline(entities, name, components, max_length)


def _inline(entities: Entities, name: FullName, components: tuple[FullName, ...], max_length: int) -> None:
    """Walk all actions that would run. The owner of a nested sequence answers for the right to read its components."""
    count = 0
    path = {name: iter(components)}  # the nested sequences, outermost first
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
        if count > max_length:
            raise _too_many()


def _behind_binding(entities: Entities, name: FullName) -> FullName:
    package = entities.one(Package, name.namespace, name.package) if name.package else None
    if package is None or package.binding is None:
        return name
    return FullName(package.binding.namespace, f"{package.binding.name}/{name.leaf}")


def _too_many() -> Refusal:
    return Refusal(400, "Too many actions in the sequence.")
