"""Many calls at once: in order, bounded, and errors where they belong. One algorithm for threads and for event loops.

The algorithm is a generator of steps. It looks ahead by a few times as many inputs as calls may run at once, so that
one slow call does not hold the others up, and an endless input is read only as far as needed.
"""

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

from aliquot.sdk.client import Client
from aliquot.sdk.errors import UsageError
from aliquot.sdk.wire import Operation

_LOOK_AHEAD = 4
_END: Any = object()

Start: TypeAlias = Callable[[Any], Operation[Any]]


class Next(NamedTuple):
    """Answered with the next input, or `_END`."""


class Begin(NamedTuple):
    """Answered with a job: a future or a task."""

    operation: Operation[Any]


class Wait(NamedTuple):
    """Answered when the job is done."""

    job: Any


class Emit(NamedTuple):
    """The next result for whoever iterates."""

    value: Any


Steps: TypeAlias = Generator[Next | Begin | Wait | Emit, Any, None]


def check_concurrency(concurrency: object) -> None:
    if not isinstance(concurrency, int) or not 1 <= concurrency <= 256:  # noqa: PLR2004 - as many as there are connections
        raise UsageError(f"concurrency: {concurrency!r} does not fit; it takes a whole number from 1 to 256")


def steps(start: Start, concurrency: int, *, return_exceptions: bool) -> Steps:
    window: deque[Any] = deque()
    more = True
    while more or window:
        if more and len(window) < _LOOK_AHEAD * concurrency and not (window and window[0].done()):
            item = yield Next()
            if item is _END:
                more = False
            else:
                window.append((yield Begin(start(item))))
            continue
        job = window.popleft()
        yield Wait(job)
        error = job.exception()
        if error is None:
            yield Emit(job.result())
        elif return_exceptions and isinstance(error, Exception):
            yield Emit(error)
        else:
            raise error


def drive(client: Client, algorithm: Steps, inputs: Iterable[Any], concurrency: int) -> Iterator[Any]:
    """With threads. Whoever stops iterating stops what has not begun."""
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
                case Next():
                    answer = next(source, _END)
                case Begin(operation):
                    answer = pool.submit(client.run, operation)
                case Wait(job):
                    _settle(job)
                case Emit(value):
                    yield value
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _settle(job: Future[Any]) -> None:
    job.exception()  # waits, and keeps what it finds for the algorithm


async def drive_async(
    client: Client, algorithm: Steps, inputs: Iterable[Any] | AsyncIterable[Any], concurrency: int
) -> AsyncIterator[Any]:
    """With tasks of the running event loop."""
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
                case Next():
                    answer = await anext(source, _END)
                case Begin(operation):
                    answer = asyncio.create_task(one(operation))
                    tasks.add(answer)
                    answer.add_done_callback(tasks.discard)
                case Wait(job):
                    await asyncio.wait([job])
                case Emit(value):
                    yield value
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _each(inputs: Iterable[Any]) -> AsyncIterator[Any]:
    import asyncio

    for item in inputs:
        yield item
        await asyncio.sleep(0)  # so that calls begin, and end, while a long input is read
