"""The client of the JSON check process, which is started with the first check so that the event loop is not blocked.

A check of 64 MiB takes about 30 ms and holds the interpreter's lock, so a thread would block the event loop as well. If
the process ends, pending checks are done in the server, and the next request starts another process.
"""

import asyncio
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from aliquot.live.bodies.json_check import CheckRequest, CheckResult, check_json
from aliquot.live.bodies.json_check_process import MAX_MESSAGE_BYTES
from aliquot.live.bodies.large import PREFIX_BYTES, mapping_of

CheckCallback = Callable[[CheckResult], None]

_MODULE = "aliquot.live.bodies.json_check_process"
_STOP_TIMEOUT_S = 2
TOO_MANY_NAMES = "the action has too many parameters for a body as large as this"
_read = msgspec.json.Decoder(CheckResult)


class JsonChecker:
    """One process for all checks, which are done in order. `close` ends it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[memoryview, CheckRequest, CheckCallback]] = deque()
        self._unsent: deque[tuple[int, bytes]] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket
        self._loop: asyncio.AbstractEventLoop

    def submit(
        self, body: memoryview, answer: CheckCallback, *, is_object: bool = False, names: tuple[str, ...] = ()
    ) -> None:
        """Check a body that `allocate` made. `answer` is called later, on the event loop."""
        mapping = mapping_of(body)
        request = CheckRequest(PREFIX_BYTES, PREFIX_BYTES + len(body), is_object, names)
        message = msgspec.json.encode(request)
        self._loop = asyncio.get_running_loop()
        if len(message) > MAX_MESSAGE_BYTES:  # a lookup of so many names here would block the event loop
            self._loop.call_soon(lambda: answer(CheckResult(TOO_MANY_NAMES)))
            return
        if mapping is None or not self._has_process():
            self._loop.call_soon(lambda: answer(check_json(body, request)))
            return
        self._waiting.append((body, request, answer))
        self._unsent.append((mapping.fd, message))
        self._send()

    async def check(self, body: memoryview, *, is_object: bool = False, names: tuple[str, ...] = ()) -> CheckResult:
        future: asyncio.Future[CheckResult] = asyncio.get_running_loop().create_future()

        def answer(result: CheckResult) -> None:
            if not future.done():
                future.set_result(result)

        self.submit(body, answer, is_object=is_object, names=names)
        return await future

    def close(self) -> None:
        if self._process is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
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

    def _send(self) -> None:
        while self._unsent:
            fd, message = self._unsent[0]
            try:
                socket.send_fds(self._sock, [message], [fd])
            except BlockingIOError:
                self._loop.add_writer(self._sock.fileno(), self._send)
                return
            except OSError:
                return  # reading will find the socket closed
            self._unsent.popleft()
        self._loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        data = b""
        with suppress(OSError):
            data = self._sock.recv(MAX_MESSAGE_BYTES)
        if not data:
            self._lost()
            return
        _, _, answer = self._waiting.popleft()
        answer(_read.decode(data))

    def _lost(self) -> None:
        self.close()
        pending, self._waiting = self._waiting, deque()
        self._unsent.clear()
        for body, request, answer in pending:
            answer(check_json(body, request))
