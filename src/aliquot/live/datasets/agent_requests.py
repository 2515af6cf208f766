"""Requests to the agent that wait for a reply, by number."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from aliquot.storage.messages import ModelsReply, Reply, WarmProgress
from aliquot.storage.volumes.messages import VolumeReply

AgentReply: TypeAlias = dict[str, int | float | str | None]


class AgentError(Exception):
    """The agent could not do what was asked. The message is for users."""


class AgentLostError(AgentError):
    """The agent ended. The request may be repeated, because another agent is being started."""


class _PendingRequest(NamedTuple):
    answer: asyncio.Future[Any]
    on_progress: Callable[[WarmProgress], None]


class AgentRequests:
    """Matches replies of the agent with the callers that wait for them."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, _PendingRequest] = {}

    def add(self, on_progress: Callable[[WarmProgress], None] = lambda _: None) -> int:
        """Add a request and return its number. The caller must then await `answer`."""
        number = next(self._numbers)
        self._waiting[number] = _PendingRequest(asyncio.get_running_loop().create_future(), on_progress)
        return number

    async def answer(self, number: int) -> Any:  # noqa: ANN401 - depends on the request
        """Wait for an `AgentReply`, or for the state of the models. Raises `AgentError`."""
        try:
            return await self._waiting[number].answer
        finally:
            del self._waiting[number]

    def receive(self, message: Reply | ModelsReply | VolumeReply | WarmProgress) -> None:
        """Deliver a reply or a progress report. Replies to cancelled requests are ignored."""
        request = self._waiting.get(message.request)
        if request is None or request.answer.done():
            return
        if isinstance(message, WarmProgress):
            request.on_progress(message)
        elif isinstance(message, VolumeReply):
            request.answer.set_result(message)
        elif message.error:
            request.answer.set_exception(AgentError(message.error))
        else:
            request.answer.set_result(message.state if isinstance(message, ModelsReply) else message.value)

    def fail(self, error: AgentLostError) -> None:
        """Fail all waiting requests."""
        for request in self._waiting.values():
            if not request.answer.done():
                request.answer.set_exception(error)
