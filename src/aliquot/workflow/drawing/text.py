"""Draw the graph of a definition as text: each state with its transitions, inner machines indented."""

from aliquot.workflow.graph import Graph, Node

INDENT = "  "


def draw_text(graph: Graph) -> str:
    """Return the lines of a drawing."""
    return "\n".join(_machine(graph, (), ""))


def _machine(graph: Graph, inside: tuple[str, ...], indent: str) -> list[str]:
    edges = [edge for edge in graph.edges if edge.inside == inside]
    lines = [f"{indent}{edge.source} → {edge.target}" for edge in edges if edge.source == "(start)"]
    for node in graph.nodes:
        if node.inside == inside:
            lines.append(f"{indent}{_title(node)}")
            lines += [
                f"{indent}{INDENT}→ {edge.target}{f'  ({edge.label})' if edge.label else ''}"
                for edge in edges
                if edge.source == node.name
            ]
            lines += _inner(graph, node, indent)
    return lines


def _inner(graph: Graph, node: Node, indent: str) -> list[str]:
    depth = len(node.inside) + 2
    machines = dict.fromkeys(
        edge.inside
        for edge in graph.edges
        if len(edge.inside) == depth and edge.inside[:-1] == (*node.inside, node.name)
    )
    lines = []
    for place in machines:
        lines.append(f"{indent}{INDENT}{place[-1]}:")
        lines += _machine(graph, place, indent + 2 * INDENT)
    return lines


def _title(node: Node) -> str:
    return f"{node.name} [{node.kind}{f' {node.resource}' if node.resource else ''}]"
