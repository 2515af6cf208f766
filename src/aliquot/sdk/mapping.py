"""Many calls at once, with results and errors in the order of the inputs. One algorithm for threads and event loops.

The algorithm is a generator of steps. It reads a few times as many inputs ahead as calls may run at once. So one slow
call does not delay the others, and an endless input is read only as far as needed.
"""

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

from aliquot.sdk.client import Client
from aliquot.sdk.errors import UsageError
from aliquot.sdk.tracebacks import without_own_frames
from aliquot.sdk.wire import Operation

_LOOK_AHEAD = 4
_END: Any = object()

Start: TypeAlias = Callable[[Any], Operation[Any]]


class NextInput(NamedTuple):
    """A step that is answered with the next input, or with `_END`."""


class BeginCall(NamedTuple):
    """A step that is answered with a job: a future or a task."""

    operation: Operation[Any]


class AwaitCall(NamedTuple):
    """A step that is answered when the job is done."""

    job: Any


class EmitResult(NamedTuple):
    """A step that carries the next result."""

    value: Any


Steps: TypeAlias = Generator[NextInput | BeginCall | AwaitCall | EmitResult, Any, None]


def check_concurrency(concurrency: object) -> None:
    if not isinstance(concurrency, int) or not 1 <= concurrency <= 256:  # noqa: PLR2004 - the number of connections
        raise UsageError(f"concurrency: {concurrency!r} does not fit; it takes a whole number from 1 to 256")


def steps(start: Start, concurrency: int, *, return_exceptions: bool) -> Steps:
    """Yield the steps of a map: read inputs ahead, begin calls, and emit their results in order."""
    window: deque[Any] = deque()
    more = True
    while more or window:
        if more and len(window) < _LOOK_AHEAD * concurrency and not (window and window[0].done()):
            item = yield NextInput()
            if item is _END:
                more = False
            else:
                window.append((yield BeginCall(start(item))))
            continue
        job = window.popleft()
        yield AwaitCall(job)
        error = job.exception()
        if error is None:
            yield EmitResult(job.result())
        elif return_exceptions and isinstance(error, Exception):
            yield EmitResult(error)
        else:
            raise without_own_frames(error)


def drive(client: Client, algorithm: Steps, inputs: Iterable[Any], concurrency: int) -> Iterator[Any]:
    """Run the steps with threads. When the iteration stops, calls that have not begun are cancelled."""
    source = iter(inputs)
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="aliquot-map")
    try:
        answer: Any = None
        while True:
            try:
                step = algorithm.send(answer)
            except StopIteration:
                return
            answer = None
            match step:
                case NextInput():
                    answer = next(source, _END)
                case BeginCall(operation):
                    answer = pool.submit(client.run, operation)
                case AwaitCall(job):
                    _wait_for(job)
                case EmitResult(value):
                    yield value
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _wait_for(job: Future[Any]) -> None:
    job.exception()  # waits, and leaves the exception for the algorithm


async def drive_async(
    client: Client, algorithm: Steps, inputs: Iterable[Any] | AsyncIterable[Any], concurrency: int
) -> AsyncIterator[Any]:
    """Run the steps with tasks of the running event loop."""
    import asyncio

    free = asyncio.Semaphore(concurrency)

    async def one(operation: Operation[Any]) -> Any:  # noqa: ANN401 - the function's own type
        async with free:
            return await client.run_async(operation)

    source = aiter(inputs) if isinstance(inputs, AsyncIterable) else _each(inputs)
    tasks: set[asyncio.Task[Any]] = set()
    try:
        answer: Any = None
        while True:
            try:
                step = algorithm.send(answer)
            except StopIteration:
                return
            answer = None
            match step:
                case NextInput():
                    answer = await anext(source, _END)
                case BeginCall(operation):
                    answer = asyncio.create_task(one(operation))
                    tasks.add(answer)
                    answer.add_done_callback(tasks.discard)
                case AwaitCall(job):
                    await asyncio.wait([job])
                case EmitResult(value):
                    yield value
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _each(inputs: Iterable[Any]) -> AsyncIterator[Any]:
    import asyncio

    for item in inputs:
        yield item
        await asyncio.sleep(0)  # lets calls begin and end while a long input is read
