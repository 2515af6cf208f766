"""Find commands that other installed packages add to `aliquot`.

A package adds a command through an entry point of the group `aliquot.commands`. The entry point has the name of the
command, and its value is a `typer.Typer` that holds only this command. Reading the entry points of all installed
packages takes time. It happens for `aliquot --help`, and for a command that `aliquot` itself does not have.
"""

from typing import Any

import typer
from typer.core import TyperGroup

from aliquot.cli.commands import OwnCommands
from aliquot.core.errors import InputError

ENTRY_POINTS = "aliquot.commands"
BENCH_COMMANDS = ("bench", "demo")  # documented commands of the package aliquot-bench


class RootGroup(TyperGroup):
    """The root command: `aliquot`'s own commands, then those of other packages."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - options of typer
        super().__init__(**options)
        self.help = join_lines(self.help)
        self.commands = OwnCommands()  # type: ignore[assignment]  # typer only reads it

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer's own type, which changes its module
        from importlib.metadata import entry_points

        return list(dict.fromkeys([*super().list_commands(ctx), *sorted(entry_points(group=ENTRY_POINTS).names)]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        command = self._find(ctx, cmd_name)
        _join_help(command)
        return command

    def _find(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        from importlib.metadata import entry_points

        for entry_point in entry_points(group=ENTRY_POINTS, name=cmd_name):
            return typer.main.get_command(entry_point.load())
        if cmd_name in BENCH_COMMANDS:
            raise InputError(
                f"`aliquot {cmd_name}` is in the package aliquot-bench, which is not installed; "
                "in a clone of the repository, run: pip install --editable . --editable benchmarks"
            )
        return None


def join_lines(text: str | None) -> str | None:
    """Join the lines of each paragraph of a help text, so that it is wrapped at the terminal's width alone.

    Paragraphs with a list or an indented line stay as they are.
    """
    if text is None:
        return None
    return "\n\n".join(_joined(paragraph) for paragraph in map(str.strip, text.split("\n\n")))


def _joined(paragraph: str) -> str:
    lines = paragraph.split("\n")
    return paragraph if any(line.startswith((" ", "-", "*", "\b")) for line in lines) else " ".join(lines)


def _join_help(command: Any) -> None:  # noqa: ANN401 - typer's own type, which changes its module
    """Join the lines in the help of a command and of the commands in it."""
    if command is None:
        return
    command.help = join_lines(command.help)
    for inner in getattr(command, "commands", {}).values():
        _join_help(inner)
