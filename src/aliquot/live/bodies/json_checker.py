"""The judge as the server asks it: another process, started when it is first needed, so that the loop goes on.

To look over 64 MiB takes some 30 ms, and holds the interpreter's lock all that time: a thread would hold up the event
loop just the same. Should the process die, those who wait are answered here, and the next question starts another.
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
    """One for all: questions are answered in turn. `close` ends it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[memoryview, CheckRequest, CheckCallback]] = deque()
        self._unsent: deque[tuple[int, bytes]] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket
        self._loop: asyncio.AbstractEventLoop

    def submit(
        self, body: memoryview, answer: CheckCallback, *, is_object: bool = False, names: tuple[str, ...] = ()
    ) -> None:
        """Of a body as `allocate` made it. `answer` comes later, on the loop, never from within this call."""
        mapping = mapping_of(body)
        question = CheckRequest(PREFIX_BYTES, PREFIX_BYTES + len(body), is_object, names)
        message = msgspec.json.encode(question)
        self._loop = asyncio.get_running_loop()
        if len(message) > MAX_MESSAGE_BYTES:  # so many names that a look for them here would keep all others waiting
            self._loop.call_soon(lambda: answer(CheckResult(TOO_MANY_NAMES)))
            return
        if mapping is None or not self._is_there():
            self._loop.call_soon(lambda: answer(check_json(body, question)))
            return
        self._waiting.append((body, question, answer))
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

    def _is_there(self) -> bool:
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
                return  # the reader will learn why
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
        left, self._waiting = self._waiting, deque()
        self._unsent.clear()
        for body, question, answer in left:
            answer(check_json(body, question))
