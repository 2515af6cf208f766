"""`aliquot trigger`: triggers, which stand for events, and the feeds that fire them."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from aliquot.cli.console import say
from aliquot.cli.entities import Yes, confirm, full_name, list_entities, print_written, put, say_deleted, show_entity
from aliquot.cli.gateway import TRIGGERS, AsJson, Data, GatewayClient, annotations_of, completer, connect
from aliquot.cli.invoke import call
from aliquot.cli.outcomes import describe_failure
from aliquot.cli.results import print_json
from aliquot.cli.values import Annotation, Param, ParamFile, TakesPairs, as_list, read_pairs, read_params
from aliquot.sdk.calls import entity_path
from aliquot.sdk.errors import FunctionError, SdkError

app = typer.Typer(
    help="Manage triggers. A trigger stands for an event. Rules say which actions run when it fires. "
    "A feed fires it automatically.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The name of the trigger.", autocompletion=completer(TRIGGERS))]


@app.command(cls=TakesPairs)
def create(
    name: Name,
    feed: Annotated[str | None, typer.Option("--feed", "-f", help="The feed action that fires it.")] = None,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a trigger. With --feed the parameters go to the feed. If the feed refuses, no trigger is created.

    For example: [bold]aliquot trigger create every-minute --feed /whisk.system/alarms/alarm -p cron '* * * * *'[/]
    """
    gateway, parameters = connect(data), read_params(param, param_file)
    said = read_pairs(annotation, "--annotation")
    if feed is None:
        written = put(gateway, TRIGGERS, name, _body(parameters, said), overwrite=False)
        print_written(written, TRIGGERS, as_json=as_json)
        return
    written = put(gateway, TRIGGERS, name, _body({}, {**said, "feed": full_name(feed)}), overwrite=False)
    try:
        answer = _tell_feed(gateway, full_name(feed), "CREATE", written, parameters)
    except SdkError:
        gateway.send("DELETE", entity_path(TRIGGERS, name), name)
        raise
    print_written({**written, "feed": answer}, TRIGGERS, as_json=as_json)


@app.command(cls=TakesPairs)
def update(
    name: Name,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Change a trigger. If it has a feed, the parameters go to the feed.

    For example: [bold]aliquot trigger update every-minute -p cron '*/5 * * * *'[/]
    """
    gateway, parameters = connect(data), read_params(param, param_file)
    before = gateway.entity(TRIGGERS, name)
    feed = _feed_of(before)
    if feed and parameters:
        _tell_feed(gateway, feed, "UPDATE", before, parameters)
        parameters = {}
    body = _body(parameters, read_pairs(annotation, "--annotation"))
    print_written(put(gateway, TRIGGERS, name, body, overwrite=True), TRIGGERS, as_json=as_json)


@app.command()
def get(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Show a trigger: its rules, its parameters, and the state of its feed.

    For example: [bold]aliquot trigger get every-minute[/]
    """
    gateway = connect(data)
    trigger = gateway.entity(TRIGGERS, name)
    if feed := _feed_of(trigger):
        trigger["feed"] = _tell_feed(gateway, feed, "READ", trigger, {})
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
    """Fire a trigger: every active rule runs its action with these parameters. Prints the activation's id.

    For example: [bold]aliquot trigger fire uploaded -p file cat.jpg[/]
    """
    gateway = connect(data)
    gateway.entity(TRIGGERS, name)
    fired = gateway.send("POST", entity_path(TRIGGERS, name), name, body=read_params(param, param_file))
    if as_json:
        print_json(fired or {"activationId": None})
    else:
        say(fired["activationId"] if fired else f"{name} has no active rule: nothing runs")


@app.command()
def delete(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Delete it even if its feed refuses.")] = False,
    yes: Yes = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete a trigger, after telling its feed.

    For example: [bold]aliquot trigger delete every-minute --yes[/]
    """
    gateway = connect(data)
    trigger = gateway.entity(TRIGGERS, name)
    confirm(f"delete {name}?", yes=yes, as_json=as_json)
    if feed := _feed_of(trigger):
        try:
            _tell_feed(gateway, feed, "DELETE", trigger, {})
        except SdkError:
            if not force:
                raise
    gateway.send("DELETE", entity_path(TRIGGERS, name), name)
    say_deleted(name, as_json=as_json)


def _body(parameters: dict[str, Any], annotations: dict[str, Any]) -> dict[str, Any]:
    """Return a body with the given parameters and annotations only. Others stay as they are."""
    body = {"parameters": as_list(parameters)} if parameters else {}
    return {**body, "annotations": as_list(annotations)} if annotations else body


def _feed_of(trigger: Mapping[str, Any]) -> str:
    """Return the full name of the feed action, or an empty text."""
    feed = annotations_of(trigger).get("feed")
    return feed if isinstance(feed, str) else ""


def _tell_feed(
    gateway: GatewayClient, feed: str, event: str, trigger: Mapping[str, Any], parameters: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - whatever the feed answers
    """Send CREATE, READ, UPDATE or DELETE to a feed and return its answer. A refusal is an error."""
    payload = {
        **parameters,
        "lifecycleEvent": event,
        "triggerName": f"/{trigger['namespace']}/{trigger['name']}",
        "authKey": gateway.client.server.key,  # the feed fires the trigger with this key
    }
    record = call(gateway, feed, payload)
    response = record["response"]
    if not response["success"]:
        raise FunctionError(
            f"the feed {feed} refused {event} of {trigger['name']}: {describe_failure(record)}",
            activation_id=record["activationId"],
        )
    return response.get("result")
