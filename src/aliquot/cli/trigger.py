"""`aliquot trigger`: names for events, and the feeds that fire them."""

from typing import Annotated, Any

import typer

from aliquot.cli.console import say
from aliquot.cli.entities import Yes, confirm, full_name, list_entities, put, say_deleted, show_entity, told
from aliquot.cli.feeds import feed_of, tell_feed
from aliquot.cli.gateway import TRIGGERS, AsJson, Data, completer, connect
from aliquot.cli.results import print_json
from aliquot.cli.values import Annotation, Param, ParamFile, TakesPairs, as_list, read_pairs, read_params
from aliquot.sdk.calls import entity_path
from aliquot.sdk.errors import SdkError

app = typer.Typer(
    help="Triggers: names for events. A rule says which action one sets off; a feed fires one by itself.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The trigger.", autocompletion=completer(TRIGGERS))]


@app.command(cls=TakesPairs)
def create(
    name: Name,
    feed: Annotated[str | None, typer.Option("--feed", "-f", help="The feed action that will fire it.")] = None,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a trigger. With --feed the parameters are the feed's; if it refuses, there is no trigger.

    For example: [bold]aliquot trigger create every-minute --feed /whisk.system/alarms/alarm -p cron '* * * * *'[/]
    """
    gateway, parameters = connect(data), read_params(param, param_file)
    said = read_pairs(annotation, "--annotation")
    if feed is None:
        written = put(gateway, TRIGGERS, name, _body(parameters, said), overwrite=False)
        told(written, TRIGGERS, as_json=as_json)
        return
    written = put(gateway, TRIGGERS, name, _body({}, {**said, "feed": full_name(feed)}), overwrite=False)
    try:
        answer = tell_feed(gateway, full_name(feed), "CREATE", written, parameters)
    except SdkError:
        gateway.send("DELETE", entity_path(TRIGGERS, name), name)
        raise
    told({**written, "feed": answer}, TRIGGERS, as_json=as_json)


@app.command(cls=TakesPairs)
def update(
    name: Name,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Change a trigger. If it has a feed, the parameters are the feed's.

    For example: [bold]aliquot trigger update every-minute -p cron '*/5 * * * *'[/]
    """
    gateway, parameters = connect(data), read_params(param, param_file)
    before = gateway.entity(TRIGGERS, name)
    feed = feed_of(before)
    if feed and parameters:
        tell_feed(gateway, feed, "UPDATE", before, parameters)
        parameters = {}
    body = _body(parameters, read_pairs(annotation, "--annotation"))
    told(put(gateway, TRIGGERS, name, body, overwrite=True), TRIGGERS, as_json=as_json)


@app.command()
def get(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Show a trigger: its rules, its parameters, and what its feed says of it.

    For example: [bold]aliquot trigger get every-minute[/]
    """
    gateway = connect(data)
    trigger = gateway.entity(TRIGGERS, name)
    if feed := feed_of(trigger):
        trigger["feed"] = tell_feed(gateway, feed, "READ", trigger, {})
    show_entity(trigger, as_json=as_json)


@app.command("list")
def list_(data: Data = None, as_json: AsJson = False) -> None:
    """List your triggers."""
    list_entities(connect(data).entities(TRIGGERS), TRIGGERS, as_json=as_json)


@app.command(cls=TakesPairs)
def fire(
    name: Name,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Fire a trigger: every rule that is active sets off its action with these parameters. Prints the activation's id.

    For example: [bold]aliquot trigger fire uploaded -p file cat.jpg[/]
    """
    gateway = connect(data)
    gateway.entity(TRIGGERS, name)
    fired = gateway.send("POST", entity_path(TRIGGERS, name), name, body=read_params(param, param_file))
    if as_json:
        print_json(fired or {"activationId": None})
    else:
        say(fired["activationId"] if fired else f"{name} has no active rule: nothing was set off")


@app.command()
def delete(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Even if its feed does not let go of it.")] = False,
    yes: Yes = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete a trigger; its feed is told first.

    For example: [bold]aliquot trigger delete every-minute --yes[/]
    """
    gateway = connect(data)
    trigger = gateway.entity(TRIGGERS, name)
    confirm(f"delete {name}?", yes=yes, as_json=as_json)
    if feed := feed_of(trigger):
        try:
            tell_feed(gateway, feed, "DELETE", trigger, {})
        except SdkError:
            if not force:
                raise
    gateway.send("DELETE", entity_path(TRIGGERS, name), name)
    say_deleted(name, as_json=as_json)


def _body(parameters: dict[str, Any], annotations: dict[str, Any]) -> dict[str, Any]:
    """Only what was said: the rest stays as it is."""
    body = {"parameters": as_list(parameters)} if parameters else {}
    return {**body, "annotations": as_list(annotations)} if annotations else body
