"""The output of `aliquot model … --of demand`: versions of forecasts, their cards and their scores."""

from collections.abc import Callable
from typing import Any

from aliquot.cli.console import say
from aliquot.cli.results import clock, percent, show, size, table, text

ORDER = ("chosen", "last", "mean", "median", "smoothed", "seasonal", "blend", "gru", "lstm", "transformer")


def show_versions(state: dict[str, Any], status_of: Callable[[dict[str, Any], dict[str, Any]], str]) -> None:
    """Print the versions, the newest first, and how well the one in use does now."""
    if not state["versions"]:
        say("nothing has been learned yet; aliquot model train --of demand learns from the profiles")
        return
    rows = table("", "version", "made", ">functions", ">rows", "forecaster", ">loss", ">coverage", ">size", "")
    for one in reversed(state["versions"]):
        card = one["manifest"]
        score = card["scores"].get(card["winner"], {"loss": 0.0, "coverage": 0.0})
        rows.add_row(
            str(card["version"]), clock(card["created"]), text(card["applications"]), text(card["rows"]),
            card["winner"], f"{score['loss']:.4f}", percent(score["coverage"]), size(sum(one["sizes"].values())),
            status_of(card, state["serving"]),
        )  # fmt: skip
    show(rows)
    watched = state["watched"]
    if watched["rows"]:
        say(
            f"since then {watched['rows']} rows: in the last window the loss is {watched['loss']:.4f} and "
            f"{percent(watched['coverage'])} are covered"
        )


def show_version(one: dict[str, Any], status: str) -> None:
    """Print the card of a version."""
    card = one["manifest"]
    rows = table("", "", "")
    rows.show_header = False
    rows.add_row("version", f"{card['version']} {status}".strip())
    rows.add_row("made", clock(card["created"]))
    rows.add_row("because", card["reason"])
    rows.add_row("learned from", f"{card['rows']} seconds with calls of {card['applications']} functions")
    rows.add_row("steps", f"{card['step_s']:g} s")
    rows.add_row("forecaster", card["winner"])
    rows.add_row("why", card["why"])
    if card["without"]:
        rows.add_row("without networks", card["without"])
    for name, taken in one["sizes"].items():
        rows.add_row(name, size(taken))
    rows.add_row("folder", one["folder"])
    show(rows)
    show_scores(card)


def show_scores(card: dict[str, Any]) -> None:
    """Print the scores of all forecasters of a version, and of the chance of a call."""
    rows = table(
        "on the newest rows", "forecaster", ">loss", ">error", ">coverage", ">width", ">precision", ">recall", ">F1"
    )
    for name in ORDER:
        if name in card["scores"]:
            score = card["scores"][name]
            rows.add_row(
                name, f"{score['loss']:.4f}", f"{score['relative_error']:.3f}", percent(score["coverage"]),
                f"{score['width']:.3f}", *(percent(score[key]) for key in ("precision", "recall", "f1")),
            )  # fmt: skip
    show(rows)
    chance = card["chance"]
    say(
        f"a call comes: log loss {chance['log_loss']:.4f} on {chance['steps']} steps, of which "
        f"{percent(chance['event_rate'])} have one; accuracy {percent(chance['accuracy'])}, precision "
        f"{percent(chance['precision'])}, recall {percent(chance['recall'])}, F1 {percent(chance['f1'])}"
    )
