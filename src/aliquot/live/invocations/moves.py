"""Performs moves of sandboxes on the node, and tells whoever listens how many devices are wanted."""

from collections.abc import Callable

import structlog

from aliquot.core.commands import Command, Move, WantDevices
from aliquot.core.events import Event, MoveFailed, SandboxMoved
from aliquot.live.node.base import Node

log = structlog.get_logger("aliquot.service")


class SandboxMoves:
    """The commands of the scheduler that concern where sandboxes are, and how many devices there should be."""

    def __init__(self, node: Node, post: Callable[[Event], None]) -> None:
        """`post` passes events to the scheduler."""
        self._node = node
        self._post = post

    def performers(self) -> dict[type[Command], Callable[..., None]]:
        """Return the function that performs each kind of command."""
        return {Move: self._move, WantDevices: self._want}

    def _move(self, command: Move) -> None:
        log.info("a sandbox moves", sandbox=command.sandbox, to=command.to, reason=command.reason)

        def over(why: str | None) -> None:
            self._post(SandboxMoved(command.move) if why is None else MoveFailed(command.move, why))

        self._node.move(command.sandbox, command.to, over)

    def _want(self, command: WantDevices) -> None:
        """Log it. Whatever scales the cluster reads the metric or the route."""
        log.info("devices are wanted", kind=command.kind, count=command.count, reason=command.reason)
