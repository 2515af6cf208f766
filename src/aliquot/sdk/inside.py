"""What the SDK finds when it runs inside a sandbox: the group of the function that uses it, and the side channel.

The sandbox's own program fills it in (`aliquot.runtime.inside`). Elsewhere it stays empty, and every call is an HTTP
request with a plain body.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol

from aliquot.sdk.server import Server


class Side(Protocol):
    """As `aliquot.runtime.side`."""

    def put(self, buffers: list[memoryview]) -> int: ...
    def take(self, number: int) -> Any: ...  # noqa: ANN401 - a mapping of memory


class Passage(Protocol):
    """As `aliquot.runtime.group`."""

    def back(self, value: Any) -> Callable[[], Any]: ...  # noqa: ANN401 - what a function returned or raised
    def noted(self, error: Any, activation_id: str) -> Exception: ...  # noqa: ANN401 - likewise
    def failure(self, text: str, activation_id: str) -> Exception: ...


class Group(Protocol):
    """As `aliquot.runtime.group`."""

    def has(self, name: str) -> bool: ...
    def call(self, name: str, arguments: Callable[[], Any], passage: Passage) -> Any: ...  # noqa: ANN401 - its result


class Host:
    def __init__(self) -> None:
        self.side: Side | None = None
        self.desk = ""  # by which name the gateway knows the side channel
        self.group: Group | None = None

    def shares(self, server: Server) -> bool:
        """Whether values go to that platform by shared memory: it is the one this sandbox is of."""
        return self.side is not None and server.url == os.environ.get("__OW_API_HOST", "").rstrip("/")


host = Host()
