"""Make the system packages as entities of the catalogue. They change only with their sources."""

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from aliquot.live.catalogue.system.contents import PACKAGES, SystemAction, SystemPackage
from aliquot.live.store.records import PYTHON, SYSTEM, Action, Entity, Exec, Package, Pair

VERSION = "0.0.1"
UPDATED_MS = 1_767_225_600_000  # every entity needs a date; a constant one is the same at every start

_SOURCES = files("aliquot.live.catalogue.system") / "actions"


def system_entities() -> Iterator[Entity]:
    """Yield the published packages and their actions. Their namespace has no keys."""
    for package in PACKAGES:
        yield _package(package)
        for action in package.actions:
            yield _action(package, action)


def source(package: str, name: str) -> str:
    """Return the source code of one action."""
    return _SOURCES.joinpath(package, f"{name}.py").read_text(encoding="utf-8")


def _package(package: SystemPackage) -> Package:
    said: dict[str, Any] = {"description": package.description, "parameters": list(package.parameters)}
    return Package(SYSTEM, package.name, VERSION, annotations=_pairs(said), publish=True, updated=UPDATED_MS)


def _action(package: SystemPackage, action: SystemAction) -> Action:
    said: dict[str, Any] = {
        "description": action.description,
        "parameters": list(action.parameters),
        "sampleInput": action.sample_input,
        "sampleOutput": action.sample_output,
        "feed": action.feed or None,
        "provide-api-key": False,
        "exec": PYTHON,
    }
    code = source(package.name, action.source or action.name)
    return Action(
        SYSTEM,
        f"{package.name}/{action.name}",
        VERSION,
        Exec(PYTHON, code),
        revision=hashlib.blake2b(code.encode(), digest_size=8).hexdigest(),
        parameters=_pairs(dict(action.defaults)),
        annotations=_pairs(said),
        publish=True,
        updated=UPDATED_MS,
    )


def _pairs(values: dict[str, Any]) -> tuple[Pair, ...]:
    return tuple(Pair(key, value) for key, value in values.items() if value not in (None, []))
