"""`aliquot action`: functions as actions of OpenWhisk, with all their settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from aliquot.cli import functions, invoke
from aliquot.cli.code import Kind, Main, Memory, Timeout, read_exec, read_limits
from aliquot.cli.console import say, write_file
from aliquot.cli.entities import body_of, full_name, print_written, put, show_entity
from aliquot.cli.gateway import ACTIONS, AsJson, Data, FunctionName, GatewayClient, annotations_of, connect
from aliquot.cli.values import Annotation, Param, ParamFile, TakesPairs, as_list
from aliquot.core.errors import InputError

app = typer.Typer(
    help="Create, change and show actions. An action is a file, a zip, a folder, an image or a sequence of actions. "
    "`aliquot deploy` is the short way.",
    no_args_is_help=True,
)
app.command("list")(functions.list_functions)
app.command("delete")(functions.delete)
app.command("invoke", cls=TakesPairs)(invoke.invoke)

File = Annotated[
    Path | None, typer.Argument(help="A source file, a zip, or a folder, which is zipped.", show_default=False)
]
Web = Annotated[
    str | None,
    typer.Option(
        metavar="true|raw|false", help="Allow calls from the web without a key. raw passes the request unparsed."
    ),
]
WebSecure = Annotated[
    str | None,
    typer.Option(
        metavar="SECRET|true|false",
        help="The secret that the header X-Require-Whisk-Auth must have. true generates one.",
    ),
]
Sequence = Annotated[
    str | None, typer.Option(metavar="A,B,C", help="Run these actions in order, each on the result of the one before.")
]
Docker = Annotated[str | None, typer.Option(metavar="IMAGE", help="Run the action in the runtime of this image.")]
Logs = Annotated[
    str | None, typer.Option("--logs", "--logsize", "-l", help="The output that a run may print, such as 1MiB.")
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", "-c", help="The calls that run in one sandbox at once.")
]


@app.command(cls=TakesPairs)
def create(
    name: Annotated[str, typer.Argument(help="The name: NAME or PACKAGE/NAME.")],
    file: File = None,
    kind: Kind = None,
    main: Main = None,
    sequence: Sequence = None,
    docker: Docker = None,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    web: Web = None,
    web_secure: WebSecure = None,
    timeout: Timeout = None,
    memory: Memory = None,
    logs: Logs = None,
    concurrency: Concurrency = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create an action. The name must not be taken.

    For example: [bold]aliquot action create hello hello.py -p greeting Hi -a gpu-share 0.25 --web true[/]
    """
    made = _exec(file, kind, main, sequence, docker)
    if made is None:
        raise InputError("FILE: there is nothing to run; give a file, --sequence or --docker")
    body = _body(made, read_limits(timeout, memory, logs, concurrency), param, param_file, annotation)
    _write(connect(data), name, _with_web(body, web, web_secure), overwrite=False, as_json=as_json)


@app.command(cls=TakesPairs)
def update(
    name: FunctionName,
    file: File = None,
    kind: Kind = None,
    main: Main = None,
    sequence: Sequence = None,
    docker: Docker = None,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    del_annotation: Annotated[list[str], typer.Option(metavar="KEY", help="An annotation to remove. Repeatable.")] = [],  # noqa: B006
    web: Web = None,
    web_secure: WebSecure = None,
    timeout: Timeout = None,
    memory: Memory = None,
    logs: Logs = None,
    concurrency: Concurrency = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Change an action, or create it. Settings that are not given stay. Given parameters replace all earlier ones.

    For example: [bold]aliquot action update hello -m 512MiB -a weight 2[/]
    """
    made = _exec(file, kind, main, sequence, docker)
    body = _body(made, read_limits(timeout, memory, logs, concurrency), param, param_file, annotation)
    if del_annotation:
        body["delAnnotations"] = del_annotation
    _write(connect(data), name, _with_web(body, web, web_secure), overwrite=True, as_json=as_json)


@app.command()
def get(
    name: FunctionName,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write its code to this file.")] = None,
    url: Annotated[bool, typer.Option("--url", help="Print only its address on the web.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show an action: its code's kind, parameters, annotations and limits.

    For example: [bold]aliquot action get hello --url[/]
    """
    gateway = connect(data)
    entity = gateway.entity(ACTIONS, name, code=save is not None)
    if url:
        say(_url(gateway, name, entity))
        return
    if save is not None:
        write_file(save, _saved(name, entity), "--save")
        entity["exec"].pop("code")
    show_entity(entity, as_json=as_json)


def _exec(
    file: Path | None, kind: str | None, main: str | None, sequence: str | None, docker: str | None
) -> dict[str, Any] | None:
    if sequence is not None:
        others = {"FILE": file, "--kind": kind, "--main": main, "--docker": docker}
        for option, value in others.items():
            if value is not None:
                raise InputError(f"{option}: a sequence has none; it is made of the actions that it names")
        components = [full_name(part.strip()) for part in sequence.split(",") if part.strip()]
        return {"kind": "sequence", "components": components}
    if docker is not None:
        if kind is not None:
            raise InputError("--kind: with --docker the image decides what runs")
        code = {} if file is None else read_exec(file, "blackbox", main)
        return {**code, "kind": "blackbox", "image": docker}
    if file is None:
        if kind is not None or main is not None:
            raise InputError("FILE: --kind and --main say what it is; give it, too")
        return None
    return read_exec(file, kind, main)


def _body(
    made: dict[str, Any] | None, limits: dict[str, int], param: list[str], param_file: str | None, annotation: list[str]
) -> dict[str, Any]:
    body = body_of(param, param_file, annotation)
    if made is not None:
        body["exec"] = made
    return {**body, "limits": limits} if limits else body


def _with_web(body: dict[str, Any], web: str | None, web_secure: str | None) -> dict[str, Any]:
    annotations: dict[str, Any] = {}
    if web is not None:
        means = {"true": "true", "yes": "true", "raw": "raw", "false": "false", "no": "false"}.get(web.lower())
        if means is None:
            raise InputError(f"--web: '{web}' is not known; it takes true, raw or false")
        annotations = {"web-export": means != "false", "raw-http": means == "raw", "final": means != "false"}
    if web_secure is not None:
        annotations["require-whisk-auth"] = _secret(web_secure)
    if not annotations:
        return body
    return {**body, "annotations": [*body.get("annotations", ()), *as_list(annotations)]}


def _secret(text: str) -> str | bool:
    import secrets

    if text.lower() == "true":
        return secrets.token_urlsafe(24)
    return False if text.lower() == "false" else text


def _write(gateway: GatewayClient, name: str, body: dict[str, Any], *, overwrite: bool, as_json: bool) -> None:
    written = put(gateway, ACTIONS, name, body, overwrite=overwrite)
    print_written(written, ACTIONS, as_json=as_json)
    if as_json:
        return
    annotations = annotations_of(written)
    if annotations.get("web-export") is True:
        say(f"on the web: {_url(gateway, name, written)}")
        if isinstance(annotations.get("require-whisk-auth"), str):
            say(f"with the header: X-Require-Whisk-Auth: {annotations['require-whisk-auth']}")


def _url(gateway: GatewayClient, name: str, entity: dict[str, Any]) -> str:
    from urllib.parse import quote

    if annotations_of(entity).get("web-export") is not True:
        raise InputError(f"{name} is not on the web; aliquot action update {name} --web true puts it there")
    namespace, _, package = str(entity["namespace"]).partition("/")
    return f"{gateway.url}/api/v1/web/" + "/".join(
        quote(part, safe="") for part in (namespace, package or "default", str(entity["name"]))
    )


def _saved(name: str, entity: dict[str, Any]) -> bytes:
    from base64 import b64decode

    code = entity["exec"].get("code")
    if code is None:
        raise InputError(f"--save: {name} has no code of its own, it is a {entity['exec']['kind']}")
    return b64decode(code) if entity["exec"].get("binary") else str(code).encode()
