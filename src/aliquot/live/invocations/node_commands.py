"""Performs the commands that need nothing but the node: memory, slices and moves. Logs how many devices are wanted."""

from collections.abc import Callable

import structlog

from aliquot.core.commands import Command, LoadMemory, Move, SetSlice, TakeBack, UnloadMemory, WantDevices
from aliquot.core.events import Event, MoveFailed, SandboxMoved
from aliquot.live.node.base import Node

log = structlog.get_logger("aliquot.service")


class NodeCommands:
    """The commands of the scheduler that concern no call."""

    def __init__(self, node: Node, post: Callable[[Event], None]) -> None:
        """`post` passes events to the scheduler."""
        self._node = node
        self._post = post

    def performers(self) -> dict[type[Command], Callable[..., None]]:
        """Return the function that performs each kind of command."""
        node = self._node
        return {
            LoadMemory: lambda command: node.load(command.sandbox),
            UnloadMemory: lambda command: node.unload(command.sandbox),
            SetSlice: lambda command: node.set_slice(command.sandbox, command.share, command.ceiling),
            TakeBack: lambda command: node.take_back(command.sandbox),
            Move: self._move,
            WantDevices: self._want,
        }

    def _move(self, command: Move) -> None:
        log.info("a sandbox moves", sandbox=command.sandbox, to=command.to, reason=command.reason)

        def over(why: str | None) -> None:
            self._post(SandboxMoved(command.move) if why is None else MoveFailed(command.move, why))

        self._node.move(command.sandbox, command.to, over)

    def _want(self, command: WantDevices) -> None:
        """Log it. Whatever scales the cluster reads the metric or the route."""
        log.info("devices are wanted", kind=command.kind, count=command.count, reason=command.reason)
