"""Connections for threads. Each exchange has one to itself, and a thread waits while all are in use."""

import codecs
import socket
import ssl
import time
from collections.abc import Generator, Iterable, Iterator
from threading import BoundedSemaphore
from typing import cast

from aliquot.sdk.http.exchange import (
    CONNECT_TIMEOUT_S,
    KEEP_ALIVE_S,
    MAX_CONNECTING,
    MAX_CONNECTIONS,
    READ_BYTES,
    HttpBody,
    HttpTarget,
    LostConnectionError,
    NoAnswerError,
    NoConnectionError,
    ReplyReader,
    check_tunnel,
    encode_head,
)
from aliquot.sdk.wire import BodyPieces, HttpReply, HttpRequest


class BlockingConnection:
    """An open connection, used by one thread at a time."""

    __slots__ = ("_last_use", "_socket")

    def __init__(self, target: HttpTarget) -> None:
        self._last_use = 0.0
        try:
            self._socket = socket.create_connection(target.peer, timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            raise NoConnectionError(str(error)) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.tunnel:
                self._open_tunnel(target.tunnel)
            if target.tls is not None:
                self._socket = target.tls.wrap_socket(self._socket, server_hostname=target.host)
        except OSError as error:
            self._socket.close()
            raise NoConnectionError(str(error)) from error

    def _open_tunnel(self, request: bytes) -> None:
        self._socket.sendall(request)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            if not (byte := self._socket.recv(1)):  # what follows belongs to TLS
                break
            answer += byte
        check_tunnel(answer)

    def is_usable(self) -> bool:
        """Return whether it was used lately and the server has not closed it since."""
        if time.monotonic() - self._last_use > KEEP_ALIVE_S:
            return False
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def begin(self, head: bytes, body: HttpBody, timeout_s: float) -> ReplyReader:
        """Send a request and read until the head of its reply is there."""
        reader = ReplyReader(head)
        try:
            self._socket.settimeout(timeout_s)
            try:
                self._send(head, body)
            except (BrokenPipeError, ConnectionResetError):  # perhaps it refuses the body and has said why
                while not reader.complete and (data := self._socket.recv(READ_BYTES)):
                    reader.feed(data)
                if not reader.complete:
                    raise
                reader.keeps_open = False
            while not reader.has_head:
                self.read(reader)
        except TimeoutError as error:
            raise NoAnswerError(str(error)) from error
        except OSError as error:
            raise LostConnectionError(str(error)) from error
        return reader

    def _send(self, head: bytes, body: HttpBody) -> None:
        if isinstance(body, bytes) and len(body) <= READ_BYTES:
            self._socket.sendall(head + body)
            return
        self._socket.sendall(head)
        for piece in body if isinstance(body, BodyPieces) else (body,):
            self._socket.sendall(piece)

    def read(self, reader: ReplyReader) -> None:
        """Read the next bytes of a reply."""
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError as error:
            raise NoAnswerError(str(error)) from error
        except OSError as error:
            raise LostConnectionError(str(error)) from error
        if data:
            reader.feed(data)
        else:
            reader.end()

    def kept(self) -> None:
        self._last_use = time.monotonic()

    def close(self) -> None:
        self._socket.close()


class BlockingConnections:
    """The connections of a process to one server. Threads may share it."""

    def __init__(self, target: HttpTarget) -> None:
        self._target = target
        self._idle: list[BlockingConnection] = []  # the last one used is last; its operations are atomic
        self._free = BoundedSemaphore(MAX_CONNECTIONS)
        self._connecting = BoundedSemaphore(MAX_CONNECTING)

    def send(self, request: HttpRequest, authorization: str) -> HttpReply:
        """Send a request and return its reply."""
        head = encode_head(self._target, request, authorization)
        with self._free:
            connection = self._take()
            try:
                reader = connection.begin(head, cast("HttpBody", request.body), request.timeout_s)
                while not reader.complete:
                    connection.read(reader)
            except BaseException:
                connection.close()
                raise
            self._put_back(connection, reader)
        return reader.reply()

    def stream(self, request: HttpRequest, authorization: str) -> Generator[ReplyReader, None, None]:
        """Send a request, and yield the reader of its reply whenever something has come."""
        head = encode_head(self._target, request, authorization)
        connection = self._take()
        try:
            reader = connection.begin(head, cast("HttpBody", request.body), request.timeout_s)
            yield reader
            while not reader.complete:
                connection.read(reader)
                yield reader
        finally:
            connection.close()

    def _take(self) -> BlockingConnection:
        return self._take_idle() or self._connect()

    def _take_idle(self) -> BlockingConnection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            if connection.is_usable():
                return connection
            connection.close()
        return None

    def _connect(self) -> BlockingConnection:
        with self._connecting:
            return self._take_idle() or BlockingConnection(self._target)

    def _put_back(self, connection: BlockingConnection, reader: ReplyReader) -> None:
        if reader.keeps_open:
            connection.kept()
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def lines_of(readers: Iterable[ReplyReader]) -> Iterator[str]:
    """Yield each line of a reply's body when it is whole."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for reader in readers:
        *lines, rest = (rest + decoder.decode(reader.take_body(), reader.complete)).split("\n")
        yield from (line.removesuffix("\r") for line in lines)
    if rest:
        yield rest
