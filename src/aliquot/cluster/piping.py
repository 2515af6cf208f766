"""Pass the bytes of one connection to another, in both directions, as fast as both take them."""

import asyncio
from collections.abc import Callable
from typing import cast

PAUSED_BYTES = 256 * 1024  # that may wait for the slower side


class PipeEnd(asyncio.Protocol):
    """One end of a pipe: what arrives here is written to the other end."""

    def __init__(self) -> None:
        self._other: PipeEnd | None = None
        self._transport: asyncio.Transport | None = None
        self._early = bytearray()  # what arrived before there was another end
        self._closed = False
        self._on_closed: Callable[[], None] = lambda: None

    def on_closed(self, then: Callable[[], None]) -> None:
        """Call `then` when this end is closed."""
        self._on_closed = then

    def join(self, other: "PipeEnd") -> None:
        """Pass bytes to another end, and those of the other end here."""
        self._lead_to(other)
        other._lead_to(self)  # noqa: SLF001 - of the same class

    def _lead_to(self, other: "PipeEnd") -> None:
        self._other = other
        early, self._early = bytes(self._early), bytearray()
        if early:
            other.write(early)
        if self._closed:
            other.shut()

    # --- asyncio.Protocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by name
        self._transport.set_write_buffer_limits(PAUSED_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early += data
        else:
            self._other.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._on_closed()
        if self._other is not None:
            self._other.shut()

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other.set_reading(on=False)

    def resume_writing(self) -> None:
        if self._other is not None:
            self._other.set_reading(on=True)

    # --- requests of the other end ----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._closed:
            self._transport.write(data)

    def set_reading(self, *, on: bool) -> None:
        """Stop reading while the other end is full, or go on."""
        if self._transport is None or self._closed:
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def shut(self) -> None:
        """Close this end after what was written to it."""
        if self._transport is not None and not self._closed:
            self._transport.close()
