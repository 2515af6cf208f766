"""`aliquot api`: routes of paths and verbs to web actions."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from aliquot.cli.console import say
from aliquot.cli.entities import Yes, confirm, say_deleted
from aliquot.cli.gateway import ACTIONS, AsJson, Data, GatewayClient, annotations_of, connect
from aliquot.cli.results import print_json, show, table
from aliquot.cli.values import read_object
from aliquot.core.errors import InputError
from aliquot.sdk import answers
from aliquot.sdk.errors import NotFoundError, RefusedError

app = typer.Typer(
    help="Make API routes. A route is a path and a verb that call a web action. An API is a set of routes.",
    no_args_is_help=True,
)
Base = Annotated[str, typer.Argument(help="The API, by its base path or its name.")]

_MANAGEMENT = "/api/v1/web/whisk.system/apimgmt"
_VERBS = ("get", "post", "put", "patch", "delete", "head", "options")
_TYPES = ("http", "json", "html", "svg", "text")
_REFUSED = 502  # the status of a web action that returns an error


@app.command()
def create(
    route: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BASE] PATH VERB ACTION", help="For example /shop /orders/{id} get orders", show_default=False
        ),
    ] = None,
    api_name: Annotated[str | None, typer.Option("--apiname", "-n", help="The name of the API.")] = None,
    response_type: Annotated[
        str, typer.Option(help=f"The type of the action's response: {', '.join(_TYPES)}.")
    ] = "json",
    config_file: Annotated[
        Path | None, typer.Option("--config-file", "-c", help="Create the whole API from this Swagger document (JSON).")
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a route: a path and a verb call a web action.

    For example: [bold]aliquot api create /shop /orders get orders --response-type http[/]
    """
    gateway = connect(data)
    if response_type not in _TYPES:
        raise InputError(f"--response-type: '{response_type}' is not known; it takes {', '.join(_TYPES)}")
    if config_file is not None:
        if route:
            raise InputError("--config-file: the document has the routes; give no path, verb or action beside it")
        document = {"namespace": "_", "swagger": read_object(str(config_file), "--config-file")}
    else:
        document = _document(gateway, route or [], api_name)
    query = {"responsetype": response_type, **_client_query(gateway)}
    made = _ask(gateway, "POST", "createApi", query, {"apidoc": document})
    if as_json:
        print_json(made)
        return
    wanted = (document.get("gatewayPath"), document.get("gatewayMethod"))
    for path, verb, url, action in _routes(made):
        if config_file is not None or wanted == (path, verb):
            say(f"{verb} {url} calls {action}")


@app.command("list")
def list_(
    base: Annotated[str | None, typer.Argument(help="Show only this API.", show_default=False)] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List your API routes with address, verb and action."""
    apis = _get(connect(data), base)
    if as_json:
        print_json(apis)
    elif not apis:
        say("there are no APIs yet; make one with: aliquot api create BASE PATH VERB ACTION")
    else:
        rows = table("", "address", "verb", "action", "API")
        for api in apis:
            for _, verb, url, action in _routes(api["value"]):
                rows.add_row(url, verb, action, str(api["value"]["apidoc"]["info"]["title"]))
        show(rows)


@app.command()
def get(base: Base, data: Data = None, as_json: AsJson = False) -> None:  # noqa: ARG001 - a document is JSON anyway
    """Print an API's Swagger document."""
    found = _get(connect(data), base)
    if not found:
        raise NotFoundError(f"there is no API {base}; `aliquot api list` shows those that there are")
    print_json(found[0]["value"]["apidoc"])


@app.command()
def delete(
    base: Base,
    path: Annotated[str, typer.Argument(help="Delete only this path.")] = "",
    verb: Annotated[str, typer.Argument(help="Delete only this verb of the path.")] = "",
    yes: Yes = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete an API, one of its paths, or one verb of a path. The actions stay.

    For example: [bold]aliquot api delete /shop /orders get --yes[/]
    """
    gateway = connect(data)
    which = " ".join(part for part in (base, path, verb) if part)
    confirm(f"delete {which}?", yes=yes, as_json=as_json)
    parts = {"basepath": base, "relpath": path, "operation": verb}
    query = {key: value for key, value in parts.items() if value} | {"force": "true"}
    _ask(gateway, "DELETE", "deleteApi", query | _client_query(gateway))
    say_deleted(which, as_json=as_json)


def _document(gateway: GatewayClient, route: list[str], name: str | None) -> dict[str, Any]:
    if len(route) not in {3, 4}:
        raise InputError("ROUTE: it takes [BASE] PATH VERB ACTION, such as /shop /orders get orders")
    base, path, verb, action = ("/", *route) if len(route) == 3 else route  # noqa: PLR2004 - without BASE
    for part in (base, path):
        if not part.startswith("/"):
            raise InputError(f"ROUTE: '{part}' does not begin with /; it takes [BASE] PATH VERB ACTION")
    if verb.lower() not in _VERBS:
        raise InputError(f"ROUTE: '{verb}' is not a verb; it takes {', '.join(_VERBS)}")
    entity = gateway.entity(ACTIONS, action)
    if annotations_of(entity).get("web-export") is not True:
        raise InputError(f"{action} is not on the web; aliquot action update {action} --web true puts it there")
    parameters = [
        {
            "name": inside,
            "in": "path",
            "required": True,
            "type": "string",
            "description": f"Default description for '{inside}'",
        }
        for inside in re.findall(r"{([^/{}]+)}", path)
    ]
    document = {
        "namespace": "_",
        "gatewayBasePath": base,
        "gatewayPath": path,
        "gatewayMethod": verb.upper(),
        "id": f"API:_:{base}",
        "action": _target(gateway, entity, verb),
        **({"apiName": name} if name else {}),
    }
    return {**document, "pathParameters": parameters} if parameters else document


def _target(gateway: GatewayClient, entity: dict[str, Any], verb: str) -> dict[str, Any]:
    """Return the action of a route as OpenWhisk's API documents describe it."""
    namespace, _, package = str(entity["namespace"]).partition("/")
    leaf = str(entity["name"])
    target: dict[str, Any] = {
        "name": f"{package}/{leaf}" if package else leaf,
        "namespace": namespace,
        "backendMethod": verb.upper(),
        "backendUrl": f"{gateway.url}/api/v1/web/{namespace}/{package or 'default'}/{leaf}.http",
        "authkey": gateway.client.server.key,
    }
    if secret := annotations_of(entity).get("require-whisk-auth"):
        target["secureKey"] = secret
    return target


def _get(gateway: GatewayClient, base: str | None) -> list[dict[str, Any]]:
    query = {"basepath": base} if base else {}
    apis: list[dict[str, Any]] = _ask(gateway, "GET", "getApi", query | _client_query(gateway))["apis"]
    return apis


def _client_query(gateway: GatewayClient) -> dict[str, str]:
    """Return the query parameters that OpenWhisk's clients send beside the key."""
    return {"accesstoken": "DUMMY_TOKEN", "spaceguid": gateway.client.server.key.partition(":")[0]}


def _ask(gateway: GatewayClient, method: str, name: str, query: dict[str, str], body: object = None) -> Any:  # noqa: ANN401 - whatever JSON holds
    reply = gateway.reply(method, f"{_MANAGEMENT}/{name}.http", query=query, body=body)
    if reply.status == _REFUSED and (text := (reply.json() or {}).get("error")):
        if "does not exist" in text:
            raise NotFoundError(text)
        raise RefusedError(text, status=reply.status)
    return answers.check(reply, "the API").json()


def _routes(api: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return path, verb, address and action of each route."""
    found = []
    for path, item in api["apidoc"]["paths"].items():
        for verb in _VERBS:
            if verb in item:
                target = item[verb]["x-openwhisk"]
                parts = (target["namespace"], target.get("package"), target["action"])
                action = "/" + "/".join(part for part in parts if part and part != "default")
                found.append((path, verb.upper(), f"{api['gwApiUrl'].rstrip('/')}{path}", action))
    return found
