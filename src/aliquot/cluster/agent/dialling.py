"""Connect to the head: TLS with the cluster's authority, and the first message of the head."""

import asyncio
import ssl
from typing import Any

from aliquot.cluster import messages
from aliquot.cluster.agent.settings import HeadAddress
from aliquot.cluster.certificates import HEAD_NAME
from aliquot.cluster.connection import GREETING_TIMEOUT_S, FrameConnection
from aliquot.cluster.messages import Challenge, FromHead


async def dial(head: HeadAddress, context: ssl.SSLContext | None) -> tuple[FrameConnection, Challenge]:
    """Return a connection and what the head says first. Raises `OSError` or `TimeoutError`."""
    loop = asyncio.get_running_loop()
    tls: dict[str, Any] = {}
    if context is not None:
        tls = {"ssl": context, "server_hostname": HEAD_NAME, "ssl_handshake_timeout": GREETING_TIMEOUT_S}
    async with asyncio.timeout(GREETING_TIMEOUT_S):
        _, connection = await loop.create_connection(FrameConnection, head.host, head.port, **tls)
    try:
        challenge = await answer(connection)
    except BaseException:
        connection.abort("the head was not understood")
        raise
    if not isinstance(challenge, Challenge):
        connection.abort("it is no head")
        raise ConnectionError(f"what answers at {head} is no head of a cluster")
    return connection, challenge


async def answer(connection: FrameConnection) -> FromHead:
    """Return the head's next message. Raises `ConnectionError` or `TimeoutError`."""
    try:
        found: FromHead = messages.decode_from_head(await connection.next())
    except ValueError as error:
        raise ConnectionError(f"the head has sent what cannot be understood: {error}") from error
    return found
