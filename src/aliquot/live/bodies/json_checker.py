"""The client of the JSON check process, which is started with the first check so that the event loop is not blocked.

A check of 64 MiB takes about 30 ms and holds the interpreter's lock, so a thread would block the event loop as well. If
the process ends, the check that it was doing is done once more by another process. The process has one check at a time,
and the others wait here, so that tenants can take turns (`check_queue.py`).
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec

from aliquot.live.bodies.check_queue import CheckQueue
from aliquot.live.bodies.json_check import CheckRequest, CheckResult, check_json
from aliquot.live.bodies.json_check_process import MAX_MESSAGE_BYTES
from aliquot.live.bodies.large import PREFIX_BYTES, mapping_of

CheckCallback = Callable[[CheckResult], None]

_MODULE = "aliquot.live.bodies.json_check_process"
_STOP_TIMEOUT_S = 2
_MAX_ATTEMPTS = 2
NOT_CHECKED = "its JSON could not be checked"
TOO_MANY_NAMES = "the action has too many parameters for a body as large as this"
_read = msgspec.json.Decoder(CheckResult)


class _PendingCheck:
    """A check that has not been answered."""

    def __init__(self, body: memoryview, descriptor: int, message: bytes, answer: CheckCallback) -> None:
        self.body = body  # its descriptor stays open as long as the body is there
        self.descriptor = descriptor
        self.message = message
        self.answer = answer
        self.attempts = 0


class JsonChecker:
    """One process for all checks. `close` ends it."""

    def __init__(self) -> None:
        self._waiting: CheckQueue[_PendingCheck] = CheckQueue()
        self._current: _PendingCheck | None = None  # that the process does
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket
        self._loop: asyncio.AbstractEventLoop

    def submit(
        self,
        body: memoryview,
        tenant: str,
        answer: CheckCallback,
        *,
        is_object: bool = False,
        names: tuple[str, ...] = (),
    ) -> None:
        """Check a body that `allocate` made, when it is the tenant's turn. `answer` is called on the event loop."""
        mapping = mapping_of(body)
        request = CheckRequest(PREFIX_BYTES, PREFIX_BYTES + len(body), is_object, names)
        message = msgspec.json.encode(request)
        self._loop = asyncio.get_running_loop()
        if len(message) > MAX_MESSAGE_BYTES:  # a lookup of so many names here would block the event loop
            self._loop.call_soon(lambda: answer(CheckResult(TOO_MANY_NAMES)))
        elif mapping is None:
            self._loop.call_soon(lambda: answer(check_json(body, request)))
        else:
            self._waiting.add(tenant, _PendingCheck(body, mapping.fd, message, answer), len(body))
            self._begin_next()

    async def check(
        self, body: memoryview, tenant: str, *, is_object: bool = False, names: tuple[str, ...] = ()
    ) -> CheckResult:
        future: asyncio.Future[CheckResult] = asyncio.get_running_loop().create_future()

        def answer(result: CheckResult) -> None:
            if not future.done():
                future.set_result(result)

        self.submit(body, tenant, answer, is_object=is_object, names=names)
        return await future

    def close(self) -> None:
        if self._process is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            process, self._process = self._process, None
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _has_process(self) -> bool:
        if self._process is None:
            self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._sock.setblocking(False)
            with theirs:
                command = [sys.executable, "-m", _MODULE, str(theirs.fileno())]
                try:
                    self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])  # noqa: S603 - our own
                except OSError:
                    self._sock.close()
                    return False
            self._loop.add_reader(self._sock.fileno(), self._readable)
        return True

    def _begin_next(self) -> None:
        """Have the process do the check whose turn it is, unless it does another one."""
        while self._current is None and self._waiting:
            self._begin(self._waiting.take())

    def _begin(self, check: _PendingCheck) -> None:
        check.attempts += 1
        if check.attempts > _MAX_ATTEMPTS or not self._has_process():
            self._loop.call_soon(check.answer, CheckResult(NOT_CHECKED))
            return
        self._current = check
        with suppress(OSError):  # reading will find the socket closed. It is empty, so that this never blocks
            socket.send_fds(self._sock, [check.message], [check.descriptor])

    def _readable(self) -> None:
        data = b""
        with suppress(OSError):
            data = self._sock.recv(MAX_MESSAGE_BYTES)
        check, self._current = self._current, None
        if not data:
            self.close()
            if check is not None:
                self._begin(check)
        elif check is not None:
            check.answer(_read.decode(data))
        self._begin_next()
