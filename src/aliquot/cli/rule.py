"""`aliquot rule`: rules that run an action when a trigger fires."""

from typing import Annotated, Any

import typer

from aliquot.cli.console import say
from aliquot.cli.entities import Yes, delete_entity, full_name, put, show_entity
from aliquot.cli.gateway import ACTIONS, RULES, TRIGGERS, AsJson, Data, completer, connect
from aliquot.cli.results import clock, print_json, show, table
from aliquot.sdk.calls import entity_path

app = typer.Typer(help="Manage rules. A rule runs an action when a trigger fires.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The name of the rule.", autocompletion=completer(RULES))]
Trigger = Annotated[str, typer.Argument(help="The trigger that fires.", autocompletion=completer(TRIGGERS))]
Action = Annotated[str, typer.Argument(help="The action that runs then.", autocompletion=completer(ACTIONS))]


@app.command()
def create(name: Name, trigger: Trigger, action: Action, data: Data = None, as_json: AsJson = False) -> None:
    """Create a rule that runs an action when a trigger fires. It is active at once.

    For example: [bold]aliquot rule create resize-uploads uploaded images/resize[/]
    """
    _write(name, trigger, action, data, overwrite=False, as_json=as_json)


@app.command()
def update(name: Name, trigger: Trigger, action: Action, data: Data = None, as_json: AsJson = False) -> None:
    """Give a rule another trigger or action. It stays active or inactive.

    For example: [bold]aliquot rule update resize-uploads uploaded images/thumbnail[/]
    """
    _write(name, trigger, action, data, overwrite=True, as_json=as_json)


@app.command()
def get(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Show a rule, and whether it is active."""
    entity = connect(data).entity(RULES, name)
    if not as_json:
        entity |= {key: _path(entity[key]) for key in ("trigger", "action")}
    show_entity(entity, as_json=as_json)


@app.command("list")
def list_(data: Data = None, as_json: AsJson = False) -> None:
    """List your rules with their status."""
    gateway = connect(data)
    rules = [gateway.entity(RULES, str(one["name"])) for one in gateway.entities(RULES)]  # the list has no status
    if as_json:
        print_json(rules)
    elif not rules:
        say("there are no rules yet; make one with: aliquot rule create NAME TRIGGER ACTION")
    else:
        rows = table("", "rule", "status", "trigger", "action", "updated")
        for one in rules:
            cells = (str(one["name"]), str(one["status"]), _path(one["trigger"]), _path(one["action"]))
            rows.add_row(*cells, clock(one.get("updated", 0)))
        show(rows)


@app.command()
def enable(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Make a rule active. From now on its trigger runs its action."""
    _set(name, "active", data, as_json=as_json)


@app.command()
def disable(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Make a rule inactive. It is kept, but runs nothing."""
    _set(name, "inactive", data, as_json=as_json)


@app.command()
def delete(name: Name, yes: Yes = False, data: Data = None, as_json: AsJson = False) -> None:
    """Delete a rule. Its trigger and its action stay."""
    delete_entity(connect(data), RULES, name, yes=yes, as_json=as_json)


def _write(name: str, trigger: str, action: str, data: Data, *, overwrite: bool, as_json: bool) -> None:
    body = {"trigger": full_name(trigger), "action": full_name(action)}
    written = put(connect(data), RULES, name, body, overwrite=overwrite)
    if as_json:
        print_json(written)
    else:
        say(f"rule {name} {written['version']}, {written['status']}: {trigger} runs {action}")


def _set(name: str, status: str, data: Data, *, as_json: bool) -> None:
    gateway = connect(data)
    gateway.entity(RULES, name)
    gateway.send("POST", entity_path(RULES, name), name, body={"status": status})
    if as_json:
        print_json({"name": name, "status": status})
    else:
        say(f"{name} is {status}")


def _path(named: dict[str, Any]) -> str:
    return f"/{named['path']}/{named['name']}"
