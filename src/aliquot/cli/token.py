"""`aliquot token`: print or replace the operator's token."""

from typing import Annotated

import typer

from aliquot.cli.console import say
from aliquot.cli.gateway import AsJson, Data, connect
from aliquot.cli.results import print_json
from aliquot.core.errors import InputError


def token(
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new token. The old one is refused from now on.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Print the operator's token, for ALIQUOT_OPERATOR on other machines and for Prometheus.

    It stays the same when the server restarts. The file operator.token in the data folder has it, too.
    """
    gateway = connect(data)
    if rotate:
        found = str(gateway.send("POST", "/operator/v1/token", "the operator's token", operator=True)["token"])
    elif not (found := gateway.client.server.operator):
        raise InputError(
            "the operator's token is not known here; it is in operator.token in the data folder of the server, and "
            "ALIQUOT_OPERATOR takes it on other machines"
        )
    if as_json:
        print_json({"token": found})
    else:
        say(found)
