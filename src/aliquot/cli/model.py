"""`aliquot model`: the models that predict the next files, their quality, and the one in use."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aliquot.cli import demand_model
from aliquot.cli.console import check_writable, progress, say
from aliquot.cli.gateway import AsJson, Data, GatewayClient, connect
from aliquot.cli.results import clock, count, percent, print_json, show, size, table, text
from aliquot.core.errors import InputError
from aliquot.sdk.errors import SdkError

if TYPE_CHECKING:
    from aliquot.sim.plots import PlotPanel

FILES, DEMAND = "files", "demand"
PATHS = {FILES: "/operator/v1/models", DEMAND: "/operator/v1/models/demand"}
_POLL_S = 0.5
_POINTS = 100
_ORDER = ("none", "popular", "markov1", "markov2", "lstm", "blend")

app = typer.Typer(
    help="Manage the models that predict which files are opened next, and with --of demand those that forecast calls. "
    "They learn from the access log and from the profiles. For the operator.",
    no_args_is_help=True,
)


def _subject(text: str) -> str:
    if text not in PATHS:
        raise InputError(f"--of: '{text}' is not known; it takes {' or '.join(PATHS)}")
    return text


Subject = Annotated[
    str,
    typer.Option("--of", help="What the models predict: files or demand.", callback=_subject),
]


@app.command("list")
def list_(of: Subject = FILES, data: Data = None, as_json: AsJson = False) -> None:
    """List the versions, the newest first, and say which one is in use."""
    state = _state(connect(data), of)
    if as_json:
        print_json(state)
        return
    if of == DEMAND:
        demand_model.show_versions(state, _status_of)
        _print_state(state, of)
        return
    versions = state["versions"]
    if not versions:
        say(
            "nothing has been learned yet; aliquot model train learns from the log of "
            f"{count(state['accesses'], 'access', 'accesses')}"
        )
    else:
        rows = table("", "version", "made", ">sessions", "winner", ">top-1", ">top-5", ">size", "")
        for one in reversed(versions):
            manifest = one["manifest"]
            score = manifest["scores"][manifest["winner"]]
            rows.add_row(
                str(manifest["version"]), clock(manifest["created"]), text(manifest["sessions"]), manifest["winner"],
                percent(score["top1"]), percent(score["top5"]), size(sum(one["sizes"].values())),
                _status_of(manifest, state["serving"]),
            )  # fmt: skip
        show(rows)
    _print_state(state, of)


@app.command("show")
def show_(
    version: Annotated[int | None, typer.Argument(help="The version.", show_default="the one in use")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the learning curve of the network to this file.")] = None,
    of: Subject = FILES,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show a version: the score of each predictor on held-back sessions, and why it is in use or not."""
    _check_plot(plot)
    state = _state(connect(data), of)
    one = _find(state, version)
    manifest = one["manifest"]
    if as_json:
        print_json(one)
    elif of == DEMAND:
        demand_model.show_version(one, _status_of(manifest, state["serving"]))
    else:
        rows = table("", "", "")
        rows.show_header = False
        rows.add_row("version", f"{manifest['version']} {_status_of(manifest, state['serving'])}".strip())
        rows.add_row("made", clock(manifest["created"]))
        learned = manifest["sessions"] - manifest["held_back"]
        rows.add_row(
            "learned from",
            f"{manifest['steps']} steps; chosen by {learned} older and {manifest['held_back']} newer sessions",
        )
        rows.add_row("winner", manifest["winner"])
        rows.add_row("why", manifest["why"])
        if manifest["without"]:
            rows.add_row("without a network", manifest["without"])
        for name, taken in one["sizes"].items():
            rows.add_row(name, size(taken))
        show(rows)
        _show_scores(manifest)
    if plot is not None:
        _draw(manifest["curve"], plot)


@app.command()
def train(
    plot: Annotated[Path | None, typer.Option(help="Draw the learning curve of the network to this file.")] = None,
    detach: Annotated[bool, typer.Option(help="Do not wait until the training ends.")] = False,
    of: Subject = FILES,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Train a version from the access log or the profiles. It comes into use if it is better than the present one.

    The training runs in its own process at the lowest priority.
    """
    _check_plot(plot)
    gateway = connect(data)
    state = gateway.send("POST", PATHS[of] + "/train", "a training", operator=True)
    if not detach:
        state = _follow(gateway, state, of)
    training = state["training"]
    if as_json:
        print_json(training)
    elif detach:
        say(f"a training has begun; {_command('list', of)} shows how far it is")
    if training["error"]:
        raise SdkError(f"nothing was learned: {training['error']}")
    if detach:
        return
    manifest = _find(state, training["version"])["manifest"]
    if not as_json:
        say(f"version {manifest['version']}: {manifest['why']}")
        (demand_model.show_scores if of == DEMAND else _show_scores)(manifest)
    if plot is not None:
        _draw(manifest["curve"], plot)


@app.command()
def use(
    version: Annotated[str | None, typer.Argument(help="The version, or auto for the best one.")] = None,
    predictor: Annotated[
        str | None,
        typer.Option(
            help=f"One of its predictors, or auto for the best one: {', '.join(_ORDER)}; "
            f"of demand {', '.join(demand_model.ORDER)}."
        ),
    ] = None,
    of: Subject = FILES,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Use a version until another one or `auto` is chosen. It changes at once, without a restart."""
    if version is None and predictor is None:
        raise InputError("VERSION: it takes the number of a version, auto, or --predictor NAME")
    if version not in {None, "auto"} and not (str(version).isdecimal() and int(str(version)) > 0):
        raise InputError(f"VERSION: '{version}' is neither the number of a version nor auto")
    body = {"version": int(version) if version is not None and version.isdecimal() else version, "predictor": predictor}
    _changed(connect(data).send("POST", PATHS[of] + "/use", "use", body=body, operator=True), of, as_json=as_json)


@app.command()
def rollback(of: Subject = FILES, data: Data = None, as_json: AsJson = False) -> None:
    """Use the previous version again, until another one or `use auto` is chosen."""
    _changed(connect(data).send("POST", PATHS[of] + "/rollback", "rollback", operator=True), of, as_json=as_json)


def _command(name: str, of: str) -> str:
    return f"aliquot model {name}" + (f" --of {of}" if of != FILES else "")


def _state(gateway: GatewayClient, of: str) -> dict[str, Any]:
    state: dict[str, Any] = gateway.send("GET", PATHS[of], "the models", operator=True)
    return state


def _follow(gateway: GatewayClient, state: dict[str, Any], of: str) -> dict[str, Any]:
    with progress() as bar:
        task = bar.add_task("training", total=_POINTS)
        while state["training"]["running"]:
            training = state["training"]
            bar.update(task, description=training["what"], completed=round(_POINTS * training["done"]))
            time.sleep(_POLL_S)
            state = _state(gateway, of)
    return state


def _find(state: dict[str, Any], version: int | None) -> dict[str, Any]:
    wanted = state["serving"]["version"] if version is None else version
    for one in state["versions"]:
        if one["manifest"]["version"] == wanted:
            found: dict[str, Any] = one
            return found
    known = ", ".join(str(one["manifest"]["version"]) for one in state["versions"])
    if not known:
        raise InputError("VERSION: nothing has been learned yet; aliquot model train makes the first version")
    if not wanted:
        raise InputError(f"VERSION: no version is in use; it takes one of {known}")
    raise InputError(f"VERSION: there is no version {wanted}; there are {known}")


def _changed(state: dict[str, Any], of: str, *, as_json: bool) -> None:
    if as_json:
        print_json(state["serving"])
    else:
        _print_state(state, of)


def _print_state(state: dict[str, Any], of: str) -> None:
    pinned = f", until another is chosen ({_command('use auto', of)})" if state["serving"]["pinned"] else ""
    say(f"{state['model']} serves{pinned}" if state["model"] != "none" else "nothing is predicted")
    if state["error"]:
        say(f"the chosen version cannot serve: {state['error']}")
    training = state["training"]
    if training is not None and training["running"]:
        say(f"a training is running ({percent(training['done'])}): {training['what']}")
    elif training is not None and training["error"]:
        say(f"the last training failed: {training['error']}")


def _status_of(manifest: dict[str, Any], serving: dict[str, Any]) -> str:
    if manifest["version"] == serving["version"]:
        return "serves"
    return "served" if manifest["version"] in serving["before"] else "" if manifest["accepted"] else "not better"


def _show_scores(manifest: dict[str, Any]) -> None:
    rows = table("on held-back sessions", "predictor", ">top-1", ">top-5", ">sure", ">of these right")
    for name in _ORDER:
        if name in manifest["scores"]:
            score = manifest["scores"][name]
            rows.add_row(
                name, percent(score["top1"]), percent(score["top5"]), text(score["sure"]), percent(score["right"])
            )
    show(rows)


def _check_plot(plot: Path | None) -> None:
    if plot is not None:
        from aliquot.sim import plots

        plots.check_plot(plot)
        check_writable(plot, "--plot")


def _draw(curve: list[dict[str, Any]], path: Path) -> None:
    from aliquot.sim.plots import draw_panels

    if not curve:
        raise InputError("--plot: no network was trained, so there is no learning curve")
    names = dict.fromkeys(point["network"] for point in curve)
    panels = _demand_panels(curve, names) if any(names) else _file_panels(curve)
    draw_panels(panels, "The learning curve", path, columns=2)
    say(f"wrote {path}")


def _file_panels(curve: list[dict[str, Any]]) -> "list[PlotPanel]":
    from aliquot.sim.plots import PlotLine, PlotPanel

    rounds = [float(point["epoch"]) for point in curve]
    loss = [
        PlotLine("learned from", rounds, [point["learned_loss"] for point in curve]),
        PlotLine("held back", rounds, [point["held_back_loss"] for point in curve]),
    ]
    hits = [
        PlotLine("top-1", rounds, [_POINTS * point["top1"] for point in curve]),
        PlotLine("top-5", rounds, [_POINTS * point["top5"] for point in curve]),
    ]
    return [
        PlotPanel("loss", "round", "nats a step", loss),
        PlotPanel("held-back sessions", "round", "% right", hits),
    ]


def _demand_panels(curve: list[dict[str, Any]], names: Iterable[str]) -> "list[PlotPanel]":
    from aliquot.sim.plots import PlotLine, PlotPanel

    panels = []
    for title, field in (("learned from", "learned_loss"), ("held back", "held_back_loss")):
        lines = []
        for name in names:
            points = [point for point in curve if point["network"] == name]
            lines.append(
                PlotLine(name, [float(point["epoch"]) for point in points], [point[field] for point in points])
            )
        panels.append(PlotPanel(title, "round", "absolute error, in asinh", lines))
    return panels
