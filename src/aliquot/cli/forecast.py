"""`aliquot forecast`: the calls that the forecaster expects."""

from typing import Any

import typer

from aliquot.cli.console import say
from aliquot.cli.gateway import AsJson, Data, connect
from aliquot.cli.results import percent, print_json, seconds, show, table

app = typer.Typer(help="Show the calls that are expected. For the operator.")


@app.callback()
def forecast() -> None:
    """Show the calls that are expected. For the operator."""


@app.command("list")
def list_forecasts(data: Data = None, as_json: AsJson = False) -> None:
    """List the functions with an expected call, the likeliest first, and how many calls will run at once."""
    gateway = connect(data)
    status: dict[str, Any] = gateway.send("GET", "/operator/v1/status", "the platform's status", operator=True)
    found = status.get("forecasts")
    if as_json:
        print_json([] if found is None else found["rows"])
    elif found is None:
        say("this server makes no forecasts; start it with --provisioning forecast or reactive")
    elif not found["rows"]:
        say("no calls are expected now")
    else:
        _show(found["rows"])


def _show(rows: list[dict[str, Any]]) -> None:
    made = table(
        "", "tenant", "function", ">chance", ">within", ">at once", ">5 %", ">95 %", ">lately", "model", names=2
    )
    for row in rows:
        made.add_row(
            row["tenant"], row["function"], percent(row["chance"]), seconds(row["window_s"]),
            *(f"{row[name]:.2g}" for name in ("middle", "low", "high", "measured")), row["model"],
        )  # fmt: skip
    show(made)
