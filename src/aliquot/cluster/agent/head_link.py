"""The agent's connection to the head: connect, connect again, and deliver reports and commands without loss."""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import NoReturn

import structlog

from aliquot.cluster import messages
from aliquot.cluster.agent.dialling import answer, dial
from aliquot.cluster.agent.settings import AgentOptions, Membership
from aliquot.cluster.connection import FrameConnection, MessageError
from aliquot.cluster.delivery import Delivery, DeliveryError
from aliquot.cluster.messages import (
    AgentSettings,
    Challenge,
    Command,
    FromHead,
    Hello,
    Ping,
    Pong,
    Refused,
    Report,
    Usage,
    Welcome,
)
from aliquot.cluster.tokens import proof_of
from aliquot.core.units import MIB
from aliquot.version import __version__

log = structlog.get_logger("aliquot.node_agent")

MAX_KEPT_BYTES = 64 * MIB  # of reports that the head has not acknowledged
MAX_KEPT_S = 600.0
ACKNOWLEDGE_BYTES = 4 * MIB
MIN_DELAY_S, MAX_DELAY_S = 0.1, 2.0  # between attempts to connect


class EndError(Exception):
    """The agent process cannot go on. `again` says whether another one can take its place.

    A node that was `removed` while it was connected does not join again by itself.
    """

    def __init__(self, reason: str, *, again: bool, removed: bool = False) -> None:
        super().__init__(reason)
        self.again = again
        self.removed = removed


class HeadLink:
    """One side of the connection. It belongs to one process of the head: another one needs another agent process."""

    def __init__(
        self,
        membership: Membership,
        options: AgentOptions,
        context: ssl.SSLContext | None,
        highest_epoch: Callable[[], int],
        note_epoch: Callable[[int], None],
    ) -> None:
        self._membership = membership
        self._options = options
        self._context = context
        self._highest_epoch = highest_epoch
        self._note_epoch = note_epoch
        self._instance = options.instance
        self._head = ""  # the head's process
        self._delivery = Delivery(MAX_KEPT_BYTES)
        self._connection: FrameConnection | None = None
        self._heard_s = time.monotonic()
        self._unacknowledged_bytes = 0
        self._handle: Callable[[Command], None] = lambda _: None
        self._lost = asyncio.Event()
        self._end: EndError | None = None
        self._lose_s = 10.0

    # --- connecting -------------------------------------------------------------------------------------

    async def first_settings(self) -> AgentSettings:
        """Connect for the first time, however long it takes. Return the head's settings. Raises `EndError`."""
        return await self._connect_repeatedly()

    def take_commands(self, handle: Callable[[Command], None]) -> None:
        """Pass commands on from now on. The head sends none before it has a report."""
        self._handle = handle

    async def stay(self) -> NoReturn:
        """Connect again whenever the connection is lost. Raises `EndError`."""
        while True:
            await self._wait_for_loss()
            await self._connect_repeatedly()

    async def _wait_for_loss(self) -> None:
        while not self._lost.is_set():
            try:
                await asyncio.wait_for(self._lost.wait(), self._lose_s / 4)
            except TimeoutError:
                silent_s = time.monotonic() - self._heard_s
                if silent_s > self._lose_s and self._connection is not None:
                    self._connection.abort(f"nothing was heard of the head for {silent_s:.1f} s")
        if self._end is not None:
            raise self._end

    async def _connect_repeatedly(self) -> AgentSettings:
        delay_s, said = MIN_DELAY_S, ""
        while True:
            try:
                return await self._connect()
            except (OSError, TimeoutError) as error:
                self._check_kept()
                if (why := str(error) or type(error).__name__) != said:
                    log.warning("the head cannot be reached; trying again", head=str(self._membership.head), error=why)
                    said = why
            await asyncio.sleep(delay_s)
            delay_s = min(MAX_DELAY_S, 2 * delay_s)

    async def _connect(self) -> AgentSettings:
        connection, challenge = await dial(self._membership.head, self._context)
        try:
            self._check_head(challenge)
            connection.send(messages.encode(self._hello(challenge)))
            found = _welcome(await answer(connection))
            unsent = list(self._delivery.resend(found.received))
        except DeliveryError as error:
            connection.abort(str(error))
            raise EndError(str(error), again=True) from error
        except BaseException:
            connection.abort("the greeting failed")
            raise
        self._head = challenge.head
        self._note_epoch(challenge.epoch)
        self._lose_s = found.settings.lose_s
        self._heard_s = time.monotonic()
        self._lost.clear()
        self._connection = connection
        for message in unsent:
            connection.send(message)
        connection.listen(self)
        log.info("connected", head=str(self._membership.head), epoch=challenge.epoch)
        return found.settings

    def _check_head(self, challenge: Challenge) -> None:
        """Raise `EndError` for another head than before, and `ConnectionError` for one that was replaced."""
        highest = self._highest_epoch()
        if challenge.epoch < highest:
            raise ConnectionError(f"this head has epoch {challenge.epoch}, and there is one with {highest}")
        if self._head and challenge.head != self._head:
            raise EndError("the head is another process, which knows none of the sandboxes here", again=True)

    def _hello(self, challenge: Challenge) -> Hello:
        own, options = self._membership, self._options
        return Hello(
            messages.PROTOCOL,
            __version__,
            own.node,
            own.identity,
            proof_of(own.secret, challenge.nonce, "hello", own.node, own.identity) if own.secret else b"",
            self._instance,
            self._delivery.received,
            options.devices,
            options.host_memory_bytes,
            options.max_sandbox_bytes,
        )

    def _check_kept(self) -> None:
        """Raise `EndError` if there is more to report than may be kept. The head counts this as the node's loss."""
        if self._delivery.is_over or self._delivery.oldest_s(time.monotonic()) > MAX_KEPT_S:
            raise EndError(
                f"{self._delivery.kept_bytes} bytes of outcomes wait for the head, the first of them for "
                f"{self._delivery.oldest_s(time.monotonic()):.0f} s; at most {MAX_KEPT_BYTES} bytes and "
                f"{MAX_KEPT_S:.0f} s are kept",
                again=True,
            )

    # --- MessageHandler ---------------------------------------------------------------------------------

    def received(self, message: bytes) -> None:
        found = messages.decode_from_head(message)
        self._unacknowledged_bytes += len(message)
        if isinstance(found, Ping):
            self._pinged(found)
        elif isinstance(found, Refused):
            self._end = EndError(found.reason, again=found.again, removed=not found.again)
            self._lost.set()
        elif isinstance(found, messages.UNNUMBERED):
            raise MessageError(f"{type(found).__name__} is no message of a head that is connected")
        else:
            self._delivery.count_received()
            self._handle(found)
            if self._unacknowledged_bytes > ACKNOWLEDGE_BYTES:
                self._pong(0.0)

    def alive(self) -> None:
        self._heard_s = time.monotonic()

    def closed(self, why: str) -> None:
        log.warning("the connection to the head is lost", reason=why)
        self._connection = None
        self._lost.set()

    def _pinged(self, ping: Ping) -> None:
        if ping.epoch < self._highest_epoch():
            raise MessageError(f"the head's epoch {ping.epoch} is over")
        try:
            self._delivery.acknowledge(ping.received)
        except DeliveryError as error:
            raise MessageError(str(error)) from error
        self._pong(ping.sent_s)

    def _pong(self, sent_s: float) -> None:
        self._unacknowledged_bytes = 0
        if self._connection is not None:
            self._connection.send(messages.encode(Pong(sent_s, self._delivery.received)))

    # --- reports ----------------------------------------------------------------------------------------

    def report(self, report: Report) -> None:
        """Send a report now, or when there is a connection again."""
        message = messages.encode(report)
        self._delivery.keep(message, time.monotonic())
        if self._connection is not None:
            self._connection.send(message)

    def tell_usage(self, usage: Usage) -> None:
        """Send what sandboxes use, if there is a connection."""
        if self._connection is not None:
            self._connection.send(messages.encode(usage))

    def close(self) -> None:
        """Close the connection after what was sent."""
        if self._connection is not None:
            self._connection.close("the agent ends")


def _welcome(answered: FromHead) -> Welcome:
    """Return the head's welcome. Raises `EndError` if it refuses this agent."""
    if isinstance(answered, Refused):
        raise EndError(answered.reason, again=answered.again)
    if not isinstance(answered, Welcome):
        raise ConnectionError(f"the head has answered with a {type(answered).__name__} message")
    return answered
