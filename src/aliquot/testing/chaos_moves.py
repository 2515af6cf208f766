"""Moves of sandboxes that are asked for at random, and end late, fail, or are overtaken by the end of the sandbox."""

from collections.abc import Callable, Collection, Mapping
from random import Random

from aliquot.core.commands import Move
from aliquot.core.events import CallExpected, Event, MoveAsked, MoveFailed, SandboxMoved
from aliquot.core.places import Place

FAILURES = 0.2  # part of the moves that fail


class ChaosMoves:
    """Asks for moves, and answers each command exactly once."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._open: dict[int, Move] = {}
        self.begun = self.done = 0

    def actions(
        self,
        alive: dict[int, Place],
        devices: Collection[str],
        functions: Collection[tuple[str, str]],
        now: Callable[[], float],
    ) -> list[tuple[int, Callable[[], list[Event]]]]:
        """Return actions with their weights."""
        return [
            (3, lambda: self.ask(alive, devices)),
            (6, lambda: self.end(alive)),
            (2, lambda: self.expect(functions, now())),
        ]

    @property
    def busy(self) -> bool:
        return bool(self._open)

    def perform(self, command: Move, alive: Mapping[int, Place]) -> None:
        if any(other.sandbox == command.sandbox for other in self._open.values() if other.sandbox in alive):
            raise AssertionError(f"moved twice at the same time: {command}")
        self._open[command.move] = command
        self.begun += 1

    def ask(self, alive: Mapping[int, Place], devices: Collection[str]) -> list[Event]:
        """Ask to move any sandbox anywhere, whether it can or not."""
        if not alive or not devices:
            return []
        return [MoveAsked(self._random.choice(list(alive)), self._random.choice(list(devices)))]

    def end(self, alive: dict[int, Place]) -> list[Event]:
        """End a move, well or badly. Its sandbox may be gone."""
        if not self._open:
            return []
        command = self._open.pop(self._random.choice(list(self._open)))
        if self._random.random() < FAILURES:
            return [MoveFailed(command.move, "a failure")]
        if command.sandbox in alive:
            alive[command.sandbox] = command.to
        self.done += 1
        return [SandboxMoved(command.move)]

    def device_lost(self, name: str) -> None:
        """Forget the moves to a device that is lost. Their sandboxes are where they were."""
        self._open = {number: command for number, command in self._open.items() if name not in command.to}

    def expect(self, functions: Collection[tuple[str, str]], now: float) -> list[Event]:
        """Tell that a call of a function will come, which is true now and then."""
        if not functions:
            return []
        key = self._random.choice(list(functions))
        return [CallExpected(*key, now + self._random.choice((0.1, 1, 20)), "alarm every-minute")]
