"""`aliquot workflow`: check, draw and test definitions of workflows, without a server."""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from aliquot.cli.console import output, say
from aliquot.cli.results import print_json
from aliquot.core.errors import InputError

app = typer.Typer(help="Check, draw and test workflows. The server does not run them yet.", no_args_is_help=True)

Definition = Annotated[
    Path, typer.Argument(metavar="FILE", help="A definition in the Amazon States Language, as JSON.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON of a file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from error


@app.command()
def check(file: Definition, as_json: AsJson = False) -> None:
    """Tell all mistakes of a definition, with state, field and reason. Exits with code 1 if there are any."""
    from aliquot.workflow.language import read_definition

    machine, complaints = read_definition(read_json(file))
    if as_json:
        print_json([complaint._asdict() for complaint in complaints])
    else:
        for complaint in complaints:
            output.print("[yellow]warning[/]" if complaint.warning else "[bold red]wrong[/]", end=" ")
            say(str(complaint))
        if machine is not None:
            output.print(f"[green]valid[/], {len(machine.states)} states")
    raise typer.Exit(0 if machine is not None else 1)


@app.command()
def graph(
    file: Definition,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture to this file, instead of text.")
    ] = None,
) -> None:
    """Draw a definition, as text or as SVG: each state with its transitions."""
    from aliquot.testing.workflow import compiled
    from aliquot.workflow.drawing import draw_svg, draw_text
    from aliquot.workflow.errors import DefinitionError
    from aliquot.workflow.graph import graph_of

    try:
        drawn = graph_of(compiled(read_json(file)))
    except DefinitionError as error:
        raise InputError(str(error)) from error
    if svg is None:
        say(draw_text(drawn))
        return
    try:
        svg.write_text(draw_svg(drawn, title=file.stem), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{svg} cannot be written: {error}") from error


@app.command("test")
def run_cases(
    file: Annotated[Path, typer.Argument(metavar="CASES", help="A JSON file with a workflow and its cases.")],
    as_json: AsJson = False,
) -> None:
    """Run a workflow offline, in virtual time, with given results of its tasks. Exits with code 1 if a case fails.

    Transitions that no case has taken are listed.
    """
    from aliquot.testing.workflow_cases import WorkflowCases, never_taken, run_case
    from aliquot.workflow.errors import DefinitionError

    try:
        cases = msgspec.convert(read_json(file), WorkflowCases)
    except msgspec.ValidationError as error:
        raise InputError(f"{file}: {error}") from error
    named = isinstance(cases.workflow, str)
    definition = read_json(file.parent / cases.workflow) if named else cases.workflow
    try:
        outcomes = [run_case(definition, case) for case in cases.cases]
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
        for source, target in missing:
            say(f"never taken: {source} → {target}")
    raise typer.Exit(1 if failed else 0)
