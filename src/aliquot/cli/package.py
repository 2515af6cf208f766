"""`aliquot package`: packages of actions that share parameters, and bindings to other packages."""

from typing import Annotated, Any

import typer

from aliquot.cli.entities import Shared, Yes, body_of, delete_entity, list_entities, print_written, put, show_entity
from aliquot.cli.gateway import PACKAGES, AsJson, Data, completer, connect
from aliquot.cli.values import Annotation, Param, ParamFile, TakesPairs
from aliquot.core.errors import InputError

app = typer.Typer(
    help="Manage packages. A package holds actions that share parameters. A binding is a package of another "
    "namespace with your own parameters.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The name of the package.", autocompletion=completer(PACKAGES))]


@app.command(cls=TakesPairs)
def create(
    name: Name,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    shared: Shared = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a package. Its actions get its parameters.

    For example: [bold]aliquot package create vision -p model resnet50 --shared[/], then
    [bold]aliquot action create vision/classify classify.py[/]
    """
    written = put(connect(data), PACKAGES, name, _body(param, param_file, annotation, shared), overwrite=False)
    print_written(written, PACKAGES, as_json=as_json)


@app.command(cls=TakesPairs)
def update(
    name: Name,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    shared: Shared = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Change a package or a binding, or create it. Settings that are not given stay. Parameters replace earlier ones.

    For example: [bold]aliquot package update vision -p model resnet101[/]
    """
    written = put(connect(data), PACKAGES, name, _body(param, param_file, annotation, shared), overwrite=True)
    print_written(written, PACKAGES, as_json=as_json)


@app.command(cls=TakesPairs)
def bind(
    package: Annotated[str, typer.Argument(help="The package to bind: /NAMESPACE/PACKAGE, or PACKAGE for your own.")],
    name: Annotated[str, typer.Argument(help="The name of the binding.")],
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Bind a package to a name in your namespace, with your own parameters.

    For example: [bold]aliquot package bind /whisk.system/utils tools[/]
    """
    namespace, _, of = package[1:].partition("/") if package.startswith("/") else ("_", "", package)
    if not namespace or not of or "/" in of:
        raise InputError(f"PACKAGE: '{package}' is not one; it takes /NAMESPACE/PACKAGE, or PACKAGE")
    body = {**_body(param, param_file, annotation, None), "binding": {"namespace": namespace, "name": of}}
    print_written(put(connect(data), PACKAGES, name, body, overwrite=False), PACKAGES, as_json=as_json)


@app.command()
def get(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Show a package: its parameters, actions and feeds.

    For example: [bold]aliquot package get /whisk.system/utils[/]
    """
    entity = connect(data).entity(PACKAGES, name)
    if not as_json:
        for kind in ("actions", "feeds"):
            entity[kind] = ", ".join(str(one["name"]) for one in entity.get(kind, ()))
    show_entity(entity, as_json=as_json)


@app.command("list")
def list_(
    namespace: Annotated[str, typer.Argument(help="/NAMESPACE, to list the packages that it shares.")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List your packages, or those that others share.

    For example: [bold]aliquot package list /whisk.system[/]
    """
    if namespace and not namespace.startswith("/"):
        raise InputError(f"NAMESPACE: '{namespace}' is not one; it takes /{namespace}")
    list_entities(connect(data).entities(PACKAGES, namespace), PACKAGES, as_json=as_json)


@app.command()
def delete(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Delete it with everything in it.")] = False,
    yes: Yes = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete a package. One that is not empty needs --force.

    For example: [bold]aliquot package delete vision --force --yes[/]
    """
    query: dict[str, str | int] | None = {"force": "true"} if force else None
    with_it = " with everything in it" if force else ""
    delete_entity(connect(data), PACKAGES, name, yes=yes, as_json=as_json, query=query, with_it=with_it)


def _body(param: list[str], param_file: str | None, annotation: list[str], shared: bool | None) -> dict[str, Any]:
    body = body_of(param, param_file, annotation)
    return body if shared is None else {**body, "publish": shared}
