"""Read the steps of a journal, whichever format wrote them.

9  Executions have limits, and devices are wanted for calls with deadlines, too. The scheduler in its snapshots has
   other fields.
8  Sandboxes move between devices (`Move`, `SandboxMoved`), calls are known to come (`CallExpected`), and capacity is
   wanted (`WantDevices`). The scheduler in its snapshots has other fields.
7  Calls may have objectives (`Promise`, `BreakPromise`), and sandboxes may start without a call. The scheduler in its
   snapshots has other fields.
6  Calls may be handed ahead (`RunNext`, `TakeBack`, `RunsTakenBack`). The scheduler in its snapshots has other fields.
5  As 4. The scheduler in its snapshots has other fields.
4  Devices belong to nodes, and more commands carry a reason and the invocation that room is made for.
3  As 2. The scheduler in its snapshots has other fields.
2  `StartSandbox` carries its invocation, and commands name a place as a list of devices.
1  `StartSandbox` has no invocation, and commands name a place as one text, `gpu-1,gpu-2`, in the field `device`.
   Its snapshots hold classes that have other names now.

Snapshots of older formats cannot be restored. Their segments are replayed from the beginning of a run.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from aliquot.core.commands import Command, LoadMemory, SetSlice, StartSandbox, StopSandbox, UnloadMemory
from aliquot.core.places import SEPARATOR
from aliquot.live.invocations.journal.writer import JournalStep

WITH_REASONS = 4  # the first format whose commands carry a reason and the invocation that room is made for

_decode = msgspec.msgpack.Decoder(JournalStep).decode


def read_step(body: bytes, journal_format: int) -> JournalStep:
    """Decode a step, and bring the commands of an older format into today's form. Raises `msgspec.DecodeError`."""
    if journal_format > 1:
        return _decode(body)
    first, now, events, commands = msgspec.msgpack.decode(body)
    return msgspec.convert([first, now, events, _upgraded(commands)], JournalStep)


def in_format(commands: list[Command], journal_format: int) -> list[Command]:
    """Return the commands without the fields that the format did not have yet, for a comparison."""
    return commands if journal_format >= WITH_REASONS else [_without_new_fields(command) for command in commands]


def _without_new_fields(command: Command) -> Command:
    if isinstance(command, StartSandbox | LoadMemory | SetSlice):
        return replace(command, reason="")
    if isinstance(command, UnloadMemory):
        return replace(command, reason="", room_for=None)
    return replace(command, room_for=None) if isinstance(command, StopSandbox) else command


def _upgraded(commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Split places into devices, and give each `StartSandbox` the invocation of the `Dispatch` that follows it."""
    dispatched = {command["sandbox"]: command["invocation"] for command in commands if command["type"] == "Dispatch"}
    for command in commands:
        if command["type"] in {"Dispatch", "StartSandbox"}:
            command["place"] = command.pop("device").split(SEPARATOR)
        if command["type"] == "StartSandbox":
            command["invocation"] = dispatched[command["sandbox"]]
    return commands
