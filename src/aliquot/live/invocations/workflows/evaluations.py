"""Evaluate expressions that may take long beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from aliquot.live.invocations.workflows.definitions import Definition
from aliquot.workflow.interpreter import Evaluate, Evaluated, evaluate


class Evaluator(Protocol):
    """Performs Evaluate commands."""

    def start(self, owner: str, definition: Definition, command: Evaluate, then: Callable[[Evaluated], None]) -> None:
        """Evaluate an expression of a definition, and call `then` on the event loop. It never fails."""
        ...


class ThreadEvaluator:
    """Evaluates in a thread."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, owner: str, definition: Definition, command: Evaluate, then: Callable[[Evaluated], None]) -> None:
        async def run() -> None:
            then(await asyncio.to_thread(evaluate, definition.machine, command))

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
