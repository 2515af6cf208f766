"""How commands reach the platform, and the options that they share."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from aliquot.cli.failures import Wanted
from aliquot.sdk import answers
from aliquot.sdk.calls import NAMESPACE, action_path, activation_path
from aliquot.sdk.client import Client, client_for
from aliquot.sdk.errors import NotFoundError, SdkError
from aliquot.sdk.server import find_server
from aliquot.sdk.wire import JSON, Reply, Request, ask, to_json

_MOST_LISTED = 200


def _remember(wanted: bool) -> bool:
    Wanted.json = wanted
    return wanted


AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", callback=_remember, is_eager=True, help="For programs: JSON on stdout, errors too.")
]
Data: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="The data folder of the platform, as given to aliquot up. "
        "Otherwise ALIQUOT_URL and ALIQUOT_KEY count, then ALIQUOT_DATA, then ~/.aliquot."
    ),
]


class Gateway:
    """The platform's HTTP side, for one namespace, or for the operator."""

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
        """The answer's JSON; `what` was asked for, should it be refused."""
        return answers.check(self.reply(method, path, query=query, body=body, operator=operator), what).json()

    def reply(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: object = None,
        operator: bool = False,
    ) -> Reply:
        content = b"" if body is None else to_json(body)
        headers = {"Content-Type": JSON} if content else {}
        return self.client.run(ask(Request(method, path, query or {}, headers, content, operator)))

    # --- what several commands ask for --------------------------------------------------------------------

    def functions(self) -> list[dict[str, Any]]:
        """All of the namespace, by name."""
        found: list[dict[str, Any]] = []
        while True:
            query: dict[str, str | int] = {"limit": _MOST_LISTED, "skip": len(found)}
            page = self.send("GET", f"{NAMESPACE}/actions", "the list of functions", query=query)
            found += page
            if len(page) < _MOST_LISTED:
                return sorted(found, key=lambda action: str(action["name"]))

    def function(self, name: str) -> dict[str, Any]:
        """Without its code. One that is not there is an error that names those like it."""
        try:
            found: dict[str, Any] = self.send("GET", action_path(name), name, query={"code": "false"})
        except NotFoundError as error:
            raise self.unknown(name) from error
        return found

    def unknown(self, name: str) -> NotFoundError:
        names = [str(action["name"]) for action in self.functions()]
        tails = {known.rpartition(".")[2]: known for known in names}  # `classify` for `vision.classify`
        near = difflib.get_close_matches(name, [*names, *tails], n=2, cutoff=0.8)
        meant = list(dict.fromkeys(tails.get(known, known) for known in near))
        if meant:
            return NotFoundError(f"there is no function {name}; did you mean {' or '.join(meant)}?")
        if names:
            return NotFoundError(f"there is no function {name}; `aliquot list` shows the {len(names)} that there are")
        return NotFoundError(f"there is no function {name}, nor any other; `aliquot deploy FILE` brings one")

    def activation(self, activation_id: str) -> dict[str, Any]:
        record: dict[str, Any] = self.send("GET", activation_path(activation_id), f"activation {activation_id}")
        return record


def connect(data: Path | None) -> Gateway:
    return Gateway(client_for(find_server(data=data)))


def complete_function(incomplete: str) -> list[str]:
    """For the shell's completion: silent when there is no platform."""
    try:
        return [str(one["name"]) for one in connect(None).functions() if str(one["name"]).startswith(incomplete)]
    except (SdkError, OSError):
        return []


FunctionName: TypeAlias = Annotated[
    str, typer.Argument(help="The function, as aliquot list shows it.", autocompletion=complete_function)
]


def annotations_of(entity: Mapping[str, Any]) -> dict[str, Any]:
    return {str(pair["key"]): pair.get("value") for pair in entity.get("annotations", ())}
