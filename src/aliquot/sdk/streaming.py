"""Results as they come: `for part in f.remote_gen(x)` yields each value that the function yields, when it does."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from aliquot.sdk import calls
from aliquot.sdk.errors import NotFoundError, UsageError
from aliquot.sdk.events import ACCEPT, EVENTS_TIMEOUT_S, read_events
from aliquot.sdk.portable import dump, load
from aliquot.sdk.session import current
from aliquot.sdk.tracebacks import without_own_frames
from aliquot.sdk.wire import PICKLE, HttpRequest

if TYPE_CHECKING:
    from aliquot.sdk.function import Function

P = ParamSpec("P")
T = TypeVar("T")

_END: Any = object()


class StreamedCall(Generic[P, T]):
    """A call whose results are iterated over as they come: `for part in call(x)`, or `async for part in call.aio(x)`.

    When the iteration stops early, the function is ended where it yields next.
    """

    def __init__(self, function: "Function[..., Any]") -> None:
        self._function = function
        if not function.is_generator:
            raise UsageError(f"{function.action} does not yield; call it with remote(…)")

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return cast("Iterator[T]", self._parts(args, kwargs, [False]))

    async def aio(self, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        """Iterate on the running event loop. A thread reads the connection."""
        stopped = [False]
        parts = self._parts(args, kwargs, stopped)
        try:
            while (part := await asyncio.to_thread(next, parts, _END)) is not _END:
                yield part
        finally:
            stopped[0] = True  # a thread that still reads ends with the next line
            if not parts.gi_running:
                parts.close()

    def _parts(self, args: tuple[Any, ...], kwargs: dict[str, Any], stopped: list[bool]) -> Any:  # noqa: ANN401
        """Yield the parts. This is a generator, so that nothing is sent before the iteration begins."""
        function = self._function
        try:
            function.client().run(function.deploy_once())
            try:
                yield from self._stream(args, kwargs, stopped)
            except NotFoundError:
                if not function.app.autodeploy:
                    raise
                function.forget_deployment()  # it was deleted; the call did not start, so it can be repeated
                function.client().run(function.deploy_once())
                yield from self._stream(args, kwargs, stopped)
        except Exception as error:
            without_own_frames(error)
            raise

    def _stream(self, args: tuple[Any, ...], kwargs: dict[str, Any], stopped: list[bool]) -> Iterator[Any]:
        function, client = self._function, self._function.client()
        session = current(client)
        query: dict[str, str | int] = {"blocking": "true", **({"session": session} if session else {})}
        body = dump((function.arguments(args), kwargs), function.app.name)
        headers = {**ACCEPT, "Content-Type": PICKLE}
        path = calls.action_path(function.action)
        request = HttpRequest("POST", path, query, headers, body, timeout_s=EVENTS_TIMEOUT_S)
        activation = ""
        for event, data in read_events(_until(client.lines(request, function.action), stopped), function.action):
            if event == "accepted":
                activation = str(data["activationId"])
            elif event == "part":
                yield load(b64decode(data), function.app.name)
            elif event == "result" and not data["response"]["success"]:
                client.run(calls.wait(function.app.name, function.action, activation, None))  # raises what it raised


def _until(lines: Iterator[str], stopped: list[bool]) -> Iterator[str]:
    for line in lines:
        if stopped[0]:
            yield "event: result"
            yield "data: " + json.dumps({"response": {"success": True}})
            yield ""
            return
        yield line
