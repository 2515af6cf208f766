"""`aliquot list` and `aliquot delete`: the functions of a namespace."""

from typing import Annotated

import typer

from aliquot.cli.console import say
from aliquot.cli.gateway import AsJson, Data, FunctionName, annotations_of, connect
from aliquot.cli.results import clock, print_json, seconds, show, size, table, text
from aliquot.sdk.calls import action_path


def list_functions(data: Data = None, as_json: AsJson = False) -> None:
    """List the functions of your namespace, with what they need."""
    actions = connect(data).functions()
    if as_json:
        print_json(actions)
        return
    if not actions:
        say("there are no functions yet; bring one with: aliquot deploy FILE")
        return
    rows = table("", "function", "kind", ">gpu", ">gpu memory", ">memory", ">timeout", "version", "updated")
    for action in actions:
        said, limits = annotations_of(action), action.get("limits", {})
        gpu_memory = said.get("gpu-memory")
        rows.add_row(
            str(action["name"]),
            text(said.get("exec")),
            text(said.get("gpu-share")),
            size(gpu_memory * 2**20) if isinstance(gpu_memory, int) else text(gpu_memory),
            size(limits.get("memory", 0) * 2**20),
            seconds(limits.get("timeout", 0) / 1000),
            text(action.get("version")),
            clock(action.get("updated", 0)),
        )
    show(rows)


def delete(
    name: FunctionName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete a function. Records of its calls stay."""
    gateway = connect(data)
    gateway.function(name)
    if not yes and not as_json:
        typer.confirm(f"delete {name}?", abort=True)
    gateway.send("DELETE", action_path(name), name)
    if as_json:
        print_json({"deleted": name})
    else:
        say(f"deleted {name}")
