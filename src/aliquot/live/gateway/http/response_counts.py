"""Count responses by their status: those of calls on the fast path, and those of all other requests."""

from collections import defaultdict

from aliquot.live.gateway.http.asgi import Message, Send


class ResponseCounts:
    """The responses since the server started."""

    def __init__(self) -> None:
        self.calls: defaultdict[int, int] = defaultdict(int)  # by status
        self.others: defaultdict[int, int] = defaultdict(int)

    def counting(self, send: Send) -> Send:
        """Return a function that sends the messages of a response, and counts it."""

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.others[message["status"]] += 1
            await send(message)

        return count
