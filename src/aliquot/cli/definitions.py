"""Read the definition of a workflow from a file: JSON, YAML, or a Python file with `@app.workflow`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from aliquot.cli.loading import load_app, split_target
from aliquot.core.errors import InputError
from aliquot.sdk.workflow.decorator import Workflow

YAML = (".yaml", ".yml")
DefinitionFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:WORKFLOW]",
        help="A definition in the Amazon States Language, as JSON or YAML, or a Python file with @app.workflow.",
    ),
]


class WorkflowSource(NamedTuple):
    """A definition, and the workflow in Python that it was read from, if it was."""

    name: str
    definition: Any
    workflow: Workflow[..., Any] | None = None


def read_document(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a JSON or YAML file."""
    kind = "YAML" if path.suffix in YAML else "JSON"
    try:
        text = path.read_text(encoding="utf-8")
        return _read_yaml(text) if kind == "YAML" else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as {kind}: {error}") from error


def _read_yaml(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of YAML. A value that JSON cannot hold, such as a date, is refused."""
    import yaml

    try:
        found = yaml.safe_load(text)
        return json.loads(json.dumps(found))
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(f"{error}. Write dates in quotes" if isinstance(error, TypeError) else str(error)) from error


def read_source(target: str, beside: Path | None = None) -> WorkflowSource:
    """Return the workflow of FILE, or of FILE.py:WORKFLOW. `beside` is the folder that FILE is relative to."""
    place = str(beside / target) if beside is not None else target
    if not Path(place).suffix.startswith(".py"):
        return WorkflowSource(Path(place).stem, read_document(Path(place)))
    path, name = split_target(place)
    workflow = choose(load_app(path, None).workflows, path, name)
    return WorkflowSource(workflow.name, workflow.definition(), workflow)


def choose(found: Mapping[str, Workflow[..., Any]], path: Path, name: str | None) -> Workflow[..., Any]:
    """Return the workflow of a file by its name, or its only one."""
    if name is not None:
        if name in found:
            return found[name]
        raise InputError(f"{path} has no workflow {name}; it has {', '.join(found) or 'none'}")
    if not found:
        raise InputError(f"{path} has no workflow; put @app.workflow over a function")
    if len(found) > 1:
        raise InputError(f"{path} has several workflows; say which: {' or '.join(f'{path}:{one}' for one in found)}")
    return next(iter(found.values()))
