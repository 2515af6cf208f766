"""`aliquot replay`: feeds the events of a live run to the core again, and compares its commands."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from aliquot.cli.console import output, progress, say
from aliquot.cli.results import count
from aliquot.core.interfaces import Queueing
from aliquot.policies.queueing import QUEUEING
from aliquot.policy_sources import find_policy


def replay(
    journal: Annotated[Path, typer.Argument(help="A data folder, or the aliquot.db in it.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A queueing policy of the journal that is not part of aliquot: FILE.py:CLASS. Repeatable."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Replay a journal. The same events must yield the same commands. Exits with code 1 if they do not.

    The server may be running. The steps that are on disk by now are replayed.
    """
    from aliquot.live.invocations.journal.replay import replay_file

    for name in policy or ():
        find_policy(QUEUEING, name, "queueing", Queueing)
    with progress() as bar:
        task = bar.add_task("replaying", total=None)
        done = replay_file(journal, lambda: bar.advance(task))
    if json:
        say(msgspec.json.encode(done).decode())
    else:
        say(
            f"{count(done.steps, 'step')} in {count(done.segments, 'segment')}: {count(done.events, 'event')}, "
            f"{count(done.commands, 'command')}"
        )
        say(f"policies: {', '.join(done.policies) or 'none'}")
        for segment in done.skipped:
            say(f"segment {segment} was skipped: an older aliquot wrote it, and the start of its run is missing")
        for difference in done.differences:
            output.print(f"[bold red]differs[/] segment {difference.segment}, step {difference.number}")
            say(f"  then:  {difference.then}\n  again: {difference.again}")
        if not done.differences:
            output.print("[green]the same commands[/]")
    raise typer.Exit(1 if done.differences else 0)
