"""Questions to the agent that somebody waits for, by their numbers."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from aliquot.storage.messages import ModelsReply, Reply, WarmProgress

Value: TypeAlias = dict[str, int | float | str | None]


class AgentError(Exception):
    """What was asked of the fabric cannot be done; the text is for people."""


class AgentLostError(AgentError):
    """It may be asked again: another agent is on its way."""


class _Request(NamedTuple):
    answer: asyncio.Future[Any]
    told: Callable[[WarmProgress], None]


class Requests:
    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, _Request] = {}

    def next(self, told: Callable[[WarmProgress], None] = lambda _: None) -> int:
        """The number of a new one. Whoever takes it waits for its `answer`."""
        number = next(self._numbers)
        self._waiting[number] = _Request(asyncio.get_running_loop().create_future(), told)
        return number

    async def answer(self, number: int) -> Any:  # noqa: ANN401 - the asker knows what it asked for
        """A `Value`, or the state of the models. Raises `AgentError`."""
        try:
            return await self._waiting[number].answer
        finally:
            del self._waiting[number]

    def heard(self, message: Reply | ModelsReply | WarmProgress) -> None:
        """Of one that nobody waits for any more, nothing."""
        request = self._waiting.get(message.request)
        if request is None or request.answer.done():
            return
        if isinstance(message, WarmProgress):
            request.told(message)
        elif message.error:
            request.answer.set_exception(AgentError(message.error))
        else:
            request.answer.set_result(message.state if isinstance(message, ModelsReply) else message.value)

    def fail(self, error: AgentLostError) -> None:
        for request in self._waiting.values():
            if not request.answer.done():
                request.answer.set_exception(error)
