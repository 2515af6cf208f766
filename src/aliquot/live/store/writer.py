"""The thread that owns the writing connection: jobs go in, answers come back to the event loop."""

import sqlite3
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

Job = Callable[[], Any]
Answer = Callable[[Any, Exception | None], None]


class Writer:
    def __init__(self, loop: AbstractEventLoop, connection: sqlite3.Connection, tidy: Callable[[], None]) -> None:
        self._loop = loop
        self._tidy = tidy  # after each job, once its answer is on its way
        self._connection = connection
        self._jobs: SimpleQueue[tuple[Job, Answer] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="aliquot-store", daemon=True)
        self._thread.start()

    def submit(self, job: Job, answer: Answer) -> None:
        """Run the job on the thread, after those before it; `answer(result, error)` comes on the loop."""
        self._jobs.put((job, answer))

    async def call(self, job: Job) -> Any:  # noqa: ANN401 - what the job returns
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
        """Finish what was submitted, then close the connection."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, answer = item
            result, failure = None, None
            try:
                result = job()
            except Exception as error:  # noqa: BLE001 - the one who asked gets it
                failure = error
            with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self._loop.call_soon_threadsafe(answer, result, failure)
            self._tidy()
        self._connection.close()
