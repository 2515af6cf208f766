"""The connection of commands to the platform, and the options that they share."""

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from aliquot.cli.failures import ErrorFormat
from aliquot.sdk import answers
from aliquot.sdk.calls import activation_path, entity_path
from aliquot.sdk.client import Client, client_for
from aliquot.sdk.errors import NotFoundError, SdkError
from aliquot.sdk.server import find_server
from aliquot.sdk.wire import JSON, HttpReply, HttpRequest, ask, to_json

ACTIONS, PACKAGES, TRIGGERS, RULES = "actions", "packages", "triggers", "rules"
WORDS = {ACTIONS: "function", PACKAGES: "package", TRIGGERS: "trigger", RULES: "rule"}
_MAX_LISTED = 200


def _remember(wanted: bool) -> bool:
    ErrorFormat.json = wanted
    return wanted


AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", callback=_remember, is_eager=True, help="Print JSON for programs, also for errors.")
]
Data: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="The data folder of the platform, as given to aliquot up. Without it ALIQUOT_URL and ALIQUOT_KEY count, "
        "then ALIQUOT_DATA, then the server in ~/.aliquot, then the only server that runs on this machine."
    ),
]


class GatewayClient:
    """The HTTP interface of the platform, for one namespace or for the operator."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.url = client.server.url

    def send(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: object = None,
        operator: bool = False,
    ) -> Any:  # noqa: ANN401 - whatever JSON holds
        """Send a request and return the JSON of the reply. `what` names the requested thing in errors."""
        return answers.check(self.reply(method, path, query=query, body=body, operator=operator), what).json()

    def reply(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: object = None,
        operator: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> HttpReply:
        content = b"" if body is None else to_json(body)
        headers = {**({"Content-Type": JSON} if content else {}), **(headers or {})}
        return self.client.run(ask(HttpRequest(method, path, query or {}, headers, content, operator)))

    # --- requests of several commands ---------------------------------------------------------------------

    def entities(self, collection: str, place: str = "") -> list[dict[str, Any]]:
        """Return all entities of the caller's namespace, of `/namespace`, or of a package, ordered by name."""
        found: list[dict[str, Any]] = []
        namespace, package = place[1:].partition("/")[::2] if place.startswith("/") else ("_", place)
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/{collection}"
        if package:
            path += f"/{quote(package, safe='')}/"
        while True:
            query: dict[str, str | int] = {"limit": _MAX_LISTED, "skip": len(found)}
            page = self.send("GET", path, f"the list of {collection}", query=query)
            found += page
            if len(page) < _MAX_LISTED:
                return sorted(found, key=qualified)

    def entity(self, collection: str, name: str, *, code: bool = False) -> dict[str, Any]:
        """Return one entity. If there is none, the error names those with a similar name."""
        query = {"code": "false"} if collection == ACTIONS and not code else {}
        try:
            found: dict[str, Any] = self.send("GET", entity_path(collection, name), name, query=query)
        except NotFoundError as error:
            raise self.unknown(collection, name) from error
        return found

    def unknown(self, collection: str, name: str) -> NotFoundError:
        word = WORDS[collection]
        if name.startswith("/"):
            return NotFoundError(f"there is no {word} {name}")
        names = [qualified(one) for one in self.entities(collection)]
        tails = {re.split(r"[./]", known)[-1]: known for known in names}  # `classify` for `vision.classify`
        near = difflib.get_close_matches(name, [*names, *tails], n=2, cutoff=0.8)
        meant = list(dict.fromkeys(known if known in names else tails[known] for known in near))
        if meant:
            return NotFoundError(f"there is no {word} {name}; did you mean {' or '.join(meant)}?")
        if names:
            lists = "aliquot list" if collection == ACTIONS else f"aliquot {word} list"
            return NotFoundError(f"there is no {word} {name}; `{lists}` lists all {len(names)}")
        creates = "aliquot deploy FILE" if collection == ACTIONS else f"aliquot {word} create"
        return NotFoundError(f"there is no {word} {name}, nor any other; `{creates}` makes one")

    def activation(self, activation_id: str) -> dict[str, Any]:
        record: dict[str, Any] = self.send("GET", activation_path(activation_id), f"activation {activation_id}")
        return record


def connect(data: Path | None) -> GatewayClient:
    return GatewayClient(client_for(find_server(data=data)))


def qualified(entity: Mapping[str, Any]) -> str:
    """Return `name` or `package/name`, as commands take it."""
    package = str(entity["namespace"]).partition("/")[2]
    return f"{package}/{entity['name']}" if package else str(entity["name"])


def completer(collection: str) -> Callable[[str], list[str]]:
    """Return a function that completes names for the shell. Without a platform there are no completions."""

    def complete(incomplete: str) -> list[str]:
        try:
            names = [qualified(one) for one in connect(None).entities(collection)]
        except (SdkError, OSError):
            return []
        return [name for name in names if name.startswith(incomplete)]

    return complete


FunctionName: TypeAlias = Annotated[
    str, typer.Argument(help="The name of the function, see aliquot list.", autocompletion=completer(ACTIONS))
]


def annotations_of(entity: Mapping[str, Any]) -> dict[str, Any]:
    return {str(pair["key"]): pair.get("value") for pair in entity.get("annotations", ())}
