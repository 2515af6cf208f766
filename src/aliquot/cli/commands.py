"""The table of `aliquot`'s own commands. The module of a command is imported when the command is used."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer

from aliquot.cli.values import TakesPairs

RUN, DEVELOP, OPENWHISK, OPERATE = "Run", "Develop", "OpenWhisk", "Operate"
STUDY = "Simulate & study"


class CommandEntry(NamedTuple):
    """The function or group that is a command, and its panel in the help."""

    attribute: str  # MODULE.NAME in this package: a function, or a `typer.Typer` for a group of commands
    panel: str
    cls: type[TakesPairs] | None = None


COMMANDS = {
    "up": CommandEntry("up.up", RUN),
    "down": CommandEntry("down.down", RUN),
    "console": CommandEntry("web_console.console", RUN),
    "doctor": CommandEntry("doctor.doctor", RUN),
    "kinds": CommandEntry("kinds.app", RUN),
    "deploy": CommandEntry("deploy.deploy", DEVELOP, TakesPairs),
    "invoke": CommandEntry("invoke.invoke", DEVELOP, TakesPairs),
    "session": CommandEntry("session.app", DEVELOP),
    "dataset": CommandEntry("dataset.app", DEVELOP),
    "secret": CommandEntry("secret.app", DEVELOP),
    "volume": CommandEntry("volume.app", DEVELOP),
    "workflow": CommandEntry("workflow.app", DEVELOP),
    "kernel": CommandEntry("kernel.app", DEVELOP),
    "object": CommandEntry("objects.app", DEVELOP),
    "logs": CommandEntry("logs.logs", DEVELOP),
    "why": CommandEntry("why.why", DEVELOP),
    "latency": CommandEntry("latency.latency", DEVELOP, TakesPairs),
    "list": CommandEntry("functions.list_functions", DEVELOP),
    "delete": CommandEntry("functions.delete", DEVELOP),
    "action": CommandEntry("action.app", OPENWHISK),
    "package": CommandEntry("package.app", OPENWHISK),
    "trigger": CommandEntry("trigger.app", OPENWHISK),
    "rule": CommandEntry("rule.app", OPENWHISK),
    "activation": CommandEntry("activation.app", OPENWHISK),
    "api": CommandEntry("api.app", OPENWHISK),
    "wskprops": CommandEntry("wskprops.wskprops", OPENWHISK),
    "status": CommandEntry("status.status", OPERATE),
    "top": CommandEntry("status.top", OPERATE),
    "usage": CommandEntry("usage.usage", OPERATE),
    "profile": CommandEntry("profile.app", OPERATE),
    "forecast": CommandEntry("forecast.app", OPERATE),
    "model": CommandEntry("model.app", OPERATE),
    "namespace": CommandEntry("namespace.app", OPERATE),
    "node": CommandEntry("node.app", OPERATE),
    "token": CommandEntry("token.token", OPERATE),
    "backup": CommandEntry("backup.backup", OPERATE),
    "restore": CommandEntry("backup.restore", OPERATE),
    "service": CommandEntry("service.app", OPERATE),
    "replay": CommandEntry("replay.replay", OPERATE),
    "whatif": CommandEntry("whatif.whatif", OPERATE),
    "trace": CommandEntry("trace.trace", OPERATE),
    "grafana": CommandEntry("grafana.grafana", OPERATE),
    "study": CommandEntry("study.study", STUDY),
    "simulate": CommandEntry("simulate.simulate", STUDY),
    "compare": CommandEntry("compare.compare", STUDY),
    "policies": CommandEntry("policies.policies", STUDY),
    "workload": CommandEntry("workload.app", STUDY),
    "reproduce": CommandEntry("reproduce.app", STUDY),
}


class OwnCommands(Mapping[str, Any]):
    """The commands as the parser wants them, by name. Each is built when it is asked for."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - typer's own type, which changes its module
        if name not in self._built:
            self._built[name] = _build(name, COMMANDS[name])
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _build(name: str, entry: CommandEntry) -> Any:  # noqa: ANN401 - as above
    module, _, attribute = entry.attribute.partition(".")
    found = getattr(import_module(f"aliquot.cli.{module}"), attribute)
    parent = typer.Typer(rich_markup_mode="rich")
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name, rich_help_panel=entry.panel)
    else:
        parent.command(name, cls=entry.cls, rich_help_panel=entry.panel)(found)
    return typer.main.get_group(parent).commands[name]
