"""The graphs of a simulation, from a TOML file: a table for each graph, and in it a table for each stage."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import FlowKey, FunctionSpec, GraphSpec, GraphStage
from aliquot.core.validate import graph_problems

TAKES = "it takes function, after, probability"


class StageTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One stage, as the file describes it."""

    function: str
    after: tuple[str, ...] = ()
    probability: float = 1


def read_graphs(path: Path, functions: Mapping[str, FunctionSpec]) -> dict[str, GraphSpec]:
    """Read the graphs, and check that they have no circles and name known functions."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: is not a TOML file: {error}") from error
    return {name: _graph(path, name, table, functions) for name, table in tables.items()}


def _graph(path: Path, name: str, table: object, functions: Mapping[str, FunctionSpec]) -> GraphSpec:
    try:
        stages = msgspec.convert(table, dict[str, StageTable])
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: [{name}]: {error}; {TAKES}") from error
    if name in functions:
        raise InputError(f"{path}: [{name}] has the name of a function; it takes another one")
    for stage, each in stages.items():
        if each.function not in functions:
            raise InputError(f"{path}: [{name}.{stage}]: function '{each.function}' is not in the functions file")
    graph = GraphSpec(
        name,
        tuple(GraphStage(stage, each.function, each.after, each.probability) for stage, each in stages.items()),
    )
    for problem in graph_problems(graph):
        raise InputError(f"{path}: [{name}]: {problem}")
    return graph


def called_flows(flows: Iterable[FlowKey], graphs: Mapping[str, GraphSpec]) -> list[FlowKey]:
    """Return the flows of functions, with those of the stages in the place of each graph."""
    called: dict[FlowKey, None] = {}
    for key in flows:
        graph = graphs.get(key.function)
        stages = [key] if graph is None else [FlowKey(key.tenant, stage.function) for stage in graph.stages]
        called.update(dict.fromkeys(stages))
    return list(called)
