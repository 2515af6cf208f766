"""The graph of a definition: nodes and edges, for drawings and for the resources that it needs."""

from collections.abc import Iterator
from typing import NamedTuple

from aliquot.workflow.language.records import CHOICE, MAP, Machine, State

START, END = "(start)", "(end)"


class Node(NamedTuple):
    """A state. `inside` is the path of the machine that has it: names of Parallel and Map states, and branches."""

    name: str
    kind: str
    inside: tuple[str, ...] = ()
    resource: str = ""
    comment: str = ""


class Edge(NamedTuple):
    """A transition, with its condition. Source and target are names of states, or (start) and (end)."""

    source: str
    target: str
    label: str = ""
    inside: tuple[str, ...] = ()


class Graph(NamedTuple):
    """The nodes and edges of a machine, and of the machines inside its states."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def resources(self) -> dict[str, tuple[str, ...]]:
        """Return the actions and workflows that are called, each with its states."""
        made: dict[str, tuple[str, ...]] = {}
        for node in self.nodes:
            if node.resource:
                made[node.resource] = (*made.get(node.resource, ()), node.name)
        return made


def graph_of(machine: Machine) -> Graph:
    """Return the graph of a definition."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    _add(machine, (), nodes, edges)
    return Graph(tuple(nodes), tuple(edges))


def _add(machine: Machine, inside: tuple[str, ...], nodes: list[Node], edges: list[Edge]) -> None:
    edges.append(Edge(START, machine.start, inside=inside))
    for state in machine.states.values():
        resource = state.resource.name if state.resource else ""
        nodes.append(Node(state.name, state.kind, inside, resource, state.comment))
        edges.extend(edge._replace(inside=inside) for edge in edges_of(state))
        for number, branch in enumerate(state.branches):
            place = "items" if state.kind == MAP else f"branch {number + 1}"
            _add(branch, (*inside, state.name, place), nodes, edges)


def edges_of(state: State) -> Iterator[Edge]:
    """Yield the transitions of a state, those of Catch at the end."""
    if state.kind == CHOICE:
        for number, target in enumerate(state.targets):
            default = number == len(state.targets) - 1 and state.has_default
            yield Edge(state.name, target, "default" if default else f"rule {number + 1}")
    else:
        yield Edge(state.name, state.next or END)
    for catcher in state.catchers:
        yield Edge(state.name, catcher.next, f"catch {', '.join(catcher.errors)}")
