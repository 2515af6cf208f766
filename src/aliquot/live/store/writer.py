"""The thread that owns the writing connection. It runs jobs, and reports their results to the event loop."""

import sqlite3
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

Job = Callable[[], Any]
JobCallback = Callable[[Any, Exception | None], None]


class WriterThread:
    def __init__(self, loop: AbstractEventLoop, connection: sqlite3.Connection, tidy: Callable[[], None]) -> None:
        self._loop = loop
        self._tidy = tidy  # called after each job, once its result is on its way to the event loop
        self._connection = connection
        self._jobs: SimpleQueue[tuple[Job, JobCallback] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="aliquot-store", daemon=True)
        self._thread.start()

    def submit(self, job: Job, answer: JobCallback) -> None:
        """Run the job on the thread, after earlier jobs. `answer(result, error)` is called on the event loop."""
        self._jobs.put((job, answer))

    async def call(self, job: Job) -> Any:  # noqa: ANN401 - what the job returns
        """Run the job on the thread and return its result."""
        future: Future[Any] = self._loop.create_future()

        def answer(result: Any, error: Exception | None) -> None:  # noqa: ANN401
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(job, answer)
        return await future

    def stop(self) -> None:
        """Run the submitted jobs, close the connection and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, answer = item
            result, failure = None, None
            try:
                result = job()
            except Exception as error:  # noqa: BLE001 - the submitter gets it
                failure = error
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(answer, result, failure)
            self._tidy()
        self._connection.close()
