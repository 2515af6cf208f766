"""`aliquot console`: opens the console in the browser."""

import json
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from aliquot.cli.console import say
from aliquot.core.errors import InputError
from aliquot.sdk.errors import NoServerError
from aliquot.sdk.server import START_ONE, find_folder

_TIMEOUT_S = 10


def console(
    tenant: Annotated[
        bool, typer.Option("--tenant", help="Log in with the key of your namespace instead of as the operator.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the browser, or only print the address.")
    ] = True,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The platform's data folder.",
            show_default="ALIQUOT_DATA, then ~/.aliquot, then that of the only server that runs",
        ),
    ] = None,
) -> None:
    """Open the console of the server on this machine: what runs, why a call waited, and a form to call functions.

    The address that is printed logs in once, within a minute.
    """
    facts = _read_facts(Path(find_folder(data)).expanduser() / "local.json")
    url = facts.get("console")
    if not url:
        raise InputError("the server has no console; start it without `--console-port none`")
    code = _ask_for_code(str(url), str(facts["key"] if tenant else facts["operator"]))
    address = f"{url}#code={code}"
    say(address)
    if browser and not webbrowser.open(address):
        say("No browser was found. Open the address by hand within a minute.")


def _read_facts(path: Path) -> dict[str, Any]:
    """Read the file that `aliquot up` keeps in its data folder while it runs."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NoServerError(f"no platform is known: {path} cannot be read ({error}); {START_ONE}") from error
    return found


def _ask_for_code(url: str, credential: str) -> str:
    request = urllib.request.Request(  # noqa: S310 - the address that the server has written
        f"{url}codes", method="POST", headers={"Authorization": f"Bearer {credential}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            return str(json.load(answer)["code"])
    except urllib.error.HTTPError as error:
        raise InputError(f"the console refuses: {json.load(error)['error']}") from error
    except OSError as error:
        raise NoServerError(f"the console at {url} does not answer: {error}") from error
