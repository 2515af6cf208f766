"""`aliquot workflow`: check, draw, test and deploy workflows, and run them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from aliquot.cli import executions
from aliquot.cli.console import output, say
from aliquot.cli.definitions import DefinitionFile, WorkflowSource, read_document, read_source
from aliquot.cli.deploy import deploy_app, put_action
from aliquot.cli.gateway import ACTIONS, AsJson, Data, connect
from aliquot.cli.results import print_json
from aliquot.cli.values import TakesPairs
from aliquot.core.errors import InputError
from aliquot.sdk.batched import BatchedFunction
from aliquot.sdk.workflow.mistakes import WorkflowRefusedError

app = typer.Typer(
    help="Check, draw, test and deploy workflows, and run them. docs/how-to/workflows.md teaches both forms.",
    no_args_is_help=True,
)
app.command(cls=TakesPairs)(executions.run)
app.command(cls=TakesPairs)(executions.start)
app.command("list")(executions.list_executions)
app.command("show")(executions.show_execution)
app.command()(executions.history)
app.command("follow")(executions.follow_execution)
app.command()(executions.stop)
app.command()(executions.redrive)
app.command()(executions.answer)


@app.command()
def deploy(
    file: DefinitionFile,
    name: Annotated[str, typer.Option(help="The name of the workflow.", show_default="the file's name")] = "",
    express: Annotated[
        bool, typer.Option("--express", help="Do not store the steps of executions: faster, but lost with the server.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Deploy a workflow, or update it. Of a Python file all functions and workflows are deployed.

    For example: [bold]aliquot workflow deploy flow.yaml[/] and then [bold]aliquot workflow run flow -p n 3[/]
    """
    if Path(file.partition(":")[0]).suffix == ".py":
        if name or express:
            raise InputError("--name, --express: of a Python file the settings are in its decorators")
        deploy_app(Path(file.partition(":")[0]), None, data, as_json=as_json)
        return
    source = read_source(file)
    annotations = [{"key": "durable", "value": not express}]
    body = {"exec": {"kind": "workflow", "code": msgspec.json.encode(source.definition).decode()}}
    name = name or source.name
    put_action(name, {**body, "annotations": annotations}, data, f"aliquot workflow run {name}", as_json=as_json)


@app.command()
def check(
    file: DefinitionFile,
    platform: Annotated[
        bool,
        typer.Option(
            "--platform", help="Ask the platform too: about functions that are missing, groups, and slices of devices."
        ),
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Tell all mistakes of a definition, with state, field and reason. Exits with code 1 if there are any.

    In a Python file each mistake has its line, and what to write instead. Warnings do not count.
    """
    from aliquot.cli.workflow_checks import complaints_of

    try:
        source = read_source(file)
    except WorkflowRefusedError as refused:
        if as_json:
            print_json([mistake._asdict() for mistake in refused.mistakes])
        else:
            for line in str(refused).splitlines()[1:]:
                output.print("[bold red]wrong[/]", end=" ")
                say(line)
        raise typer.Exit(1) from refused
    complaints = complaints_of(source, connect(data) if platform or data is not None else None)
    valid = all(complaint.warning for complaint in complaints)
    if as_json:
        print_json([complaint._asdict() for complaint in complaints])
    else:
        for complaint in complaints:
            output.print("[yellow]warning[/]" if complaint.warning else "[bold red]wrong[/]", end=" ")
            say(str(complaint))
        if valid:
            output.print(f"[green]valid[/], {len(source.definition['States'])} states")
    raise typer.Exit(0 if valid else 1)


@app.command()
def graph(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME|ID",
            help="A file as for check, the name of a deployed workflow, or the id of an execution.",
        ),
    ],
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture to this file, instead of text.")
    ] = None,
    data: Data = None,
) -> None:
    """Draw a workflow, as text or as SVG: each state with its transitions. Of an execution, also where it has been.

    For example: [bold]aliquot workflow graph $(aliquot workflow start flow) --svg flow.svg[/]
    """
    from aliquot.cli.drawings import read_drawn, read_picture
    from aliquot.testing.workflow import compiled
    from aliquot.workflow.drawing import draw_svg, draw_text
    from aliquot.workflow.errors import DefinitionError
    from aliquot.workflow.graph import graph_of

    picture = read_picture(target, data) if svg is not None else None
    if svg is not None and picture is not None:
        _write(svg, picture)
        return
    found = read_drawn(target, data)
    try:
        drawn = graph_of(compiled(found.definition))
    except DefinitionError as error:
        raise InputError(str(error)) from error
    if svg is not None:
        _write(svg, draw_svg(drawn, title=found.title))
        return
    say(draw_text(drawn))
    for name, mark in found.marks.items():
        say(f"{mark.status}: {name}" + (f", {mark.entered} times" if mark.entered > 1 else ""))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error}") from error


@app.command("test")
def run_cases(
    file: Annotated[Path, typer.Argument(metavar="CASES", help="A JSON or YAML file with a workflow and its cases.")],
    state: Annotated[
        str, typer.Option(metavar="STATE", help="Show what goes into this state and comes out of it, in each case.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Run a workflow offline, in virtual time, with given results of its tasks. Exits with code 1 if a case fails.

    Functions of a Python file run in this process if a case has no results for them. Transitions that no case has taken
    are listed.
    """
    from aliquot.testing.workflow_cases import WorkflowCases, never_taken, run_case
    from aliquot.workflow.errors import DefinitionError

    document = read_document(file)
    if isinstance(document, dict) and "States" in document:
        raise InputError(
            f"{file} is a definition; a file of cases has workflow, such as {file.name}, and a list of cases. Without "
            "cases there is aliquot workflow check"
        )
    try:
        cases = msgspec.convert(document, WorkflowCases)
    except msgspec.ValidationError as error:
        raise InputError(f"{file}: {error}") from error
    source = WorkflowSource(file.stem, cases.workflow)
    if isinstance(cases.workflow, str):
        source = read_source(cases.workflow, file.parent)
    definition, functions = source.definition, _functions(source)
    try:
        outcomes = [run_case(definition, case, functions, state) for case in cases.cases]
        missing = never_taken(definition, outcomes)
    except DefinitionError as error:
        raise InputError(str(error)) from error
    failed = sum(bool(outcome.differences) for outcome in outcomes)
    if as_json:
        print_json({"cases": msgspec.to_builtins(outcomes), "neverTaken": missing})
    else:
        for outcome in outcomes:
            output.print("[bold red]failed[/]" if outcome.differences else "[green]passed[/]", end=" ")
            say(outcome.name)
            for difference in outcome.differences:
                say(f"  {difference}")
            for row in outcome.data:
                told = [f"{name} {msgspec.json.encode(row[name]).decode()}" for name in row if name != "event"]
                say(f"  {row['event']} {', '.join(told)}".rstrip())
        for before, after in missing:
            say(f"never taken: {before} → {after}")
    raise typer.Exit(1 if failed else 0)


def _functions(source: WorkflowSource) -> dict[str, Any]:
    """Return the functions and workflows of a Python file, by the names of their actions."""
    from aliquot.testing.workflow import in_process

    if source.workflow is None:
        return {}
    owner = source.workflow.app
    parts: list[Any] = [*owner.functions.values(), *owner.workflows.values()]
    return {one.action: in_process(_one_item(one) if isinstance(one, BatchedFunction) else one.raw) for one in parts}


def _one_item(function: BatchedFunction[Any, Any]) -> Callable[..., Any]:
    """Return a function that calls a batched one with a single item, as a Task does."""
    return lambda **arguments: function(*arguments.values())


@app.command("from-sequence")
def from_sequence(name: Annotated[str, typer.Argument(help="The name of a sequence.")], data: Data = None) -> None:
    """Print a definition that does what a sequence does, to deploy it and to go on from there.

    For example: [bold]aliquot workflow from-sequence pipeline > flow.json[/]
    """
    found = connect(data).entity(ACTIONS, name)
    components = found["exec"].get("components")
    if found["exec"]["kind"] != "sequence" or not components:
        raise InputError(f"{name} is no sequence, but of the kind {found['exec']['kind']}")
    print_json(sequence_definition(name, components))


def sequence_definition(name: str, components: list[str]) -> dict[str, Any]:
    """Return a definition with a Task for each component. Each gets the result of the one before it."""
    titles: list[str] = []
    for component in components:
        title = component.rpartition("/")[2]
        titles.append(title if title not in titles else f"{title} ({len(titles) + 1})")
    states: dict[str, Any] = {}
    for title, component, following in zip(titles, components, [*titles[1:], ""], strict=True):
        leads: dict[str, Any] = {"Next": following} if following else {"End": True}
        states[title] = {"Type": "Task", "Resource": component, **leads}
    return {"Comment": f"made from the sequence {name}", "StartAt": titles[0], "States": states}
