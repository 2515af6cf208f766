"""`aliquot forecast`: the calls that the forecaster expects."""

from typing import Annotated, Any

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


@app.command()
def capacity(data: Data = None, as_json: AsJson = False) -> None:
    """Show how many devices of each kind the calls that are expected take, half of the time and 95 % of it."""
    rows: list[dict[str, Any]] = connect(data).send("GET", "/operator/v1/capacity", "the capacity", operator=True)
    if as_json:
        print_json(rows)
    elif not rows:
        say("this server has no accelerators")
    else:
        made = table("", "kind", ">there", ">half of\nthe time", ">95 %", "reason")
        for row in rows:
            made.add_row(row["kind"], *(str(row[name]) for name in ("there", "middle", "wanted")), row["reason"])
        show(made)


@app.command()
def move(
    sandbox: Annotated[int, typer.Argument(help="The number of the sandbox, as `aliquot top` shows it.")],
    device: Annotated[str, typer.Argument(help="The device to which it moves, such as host-2.")],
    data: Data = None,
) -> None:
    """Move a sandbox to another device of its kind, while it runs. For example: aliquot forecast move 3 host-2."""
    asked = {"sandbox": sandbox, "device": device}
    connect(data).send("POST", "/operator/v1/moves", "a move", body=asked, operator=True)
    say(f"sandbox {sandbox} moves to {device}")


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
