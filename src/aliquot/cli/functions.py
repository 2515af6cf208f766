"""`aliquot list` and `aliquot delete`: list and delete the functions of a namespace."""

from typing import Annotated

import typer

from aliquot.cli.console import say
from aliquot.cli.entities import Yes, delete_entity
from aliquot.cli.gateway import ACTIONS, AsJson, Data, FunctionName, annotations_of, connect, qualified
from aliquot.cli.results import clock, print_json, seconds, show, size, table, text
from aliquot.core.units import MIB


def list_functions(
    package: Annotated[
        str | None, typer.Argument(help="Only functions of this package. /NAMESPACE/PACKAGE is a shared one.")
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List the functions of your namespace, with their needs and limits."""
    actions = connect(data).entities(ACTIONS, package or "")
    if as_json:
        print_json(actions)
        return
    if not actions:
        say(f"there are no functions {f'in {package}' if package else 'yet'}; deploy one with: aliquot deploy FILE")
        return
    rows = table("", "function", "kind", ">gpu", ">gpu memory", ">memory", ">timeout", "version", "updated")
    for action in actions:
        said, limits = annotations_of(action), action.get("limits", {})
        gpu_memory = said.get("gpu-memory")
        rows.add_row(
            qualified(action),
            text(said.get("exec")),
            text(said.get("gpu-share")),
            size(gpu_memory * MIB) if isinstance(gpu_memory, int) else text(gpu_memory),
            size(limits.get("memory", 0) * MIB),
            seconds(limits.get("timeout", 0) / 1000),
            text(action.get("version")),
            clock(action.get("updated", 0)),
        )
    show(rows)


def delete(name: FunctionName, yes: Yes = False, data: Data = None, as_json: AsJson = False) -> None:
    """Delete a function. The records of its calls stay."""
    delete_entity(connect(data), ACTIONS, name, yes=yes, as_json=as_json)
