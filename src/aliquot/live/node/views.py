"""Who shows datasets to sandboxes: the node's side of it."""

import os
from typing import Protocol

from aliquot.live.node.base import Launch

NO_VIEWS = "This machine cannot show datasets to functions: `aliquot doctor` says why, and what would help."


class Views(Protocol):
    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        """A sandbox has moved in. The kernel asks about its datasets on this descriptor of `/dev/fuse`, now yours.

        Until somebody answers there, whoever looks into the sandbox's datasets waits.
        """

    def close(self, sandbox: int) -> None:
        """It has gone; of one that was never told of, nothing."""


class NoViews:
    """Nobody does: whoever looks gets an error at once."""

    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        os.close(device)

    def close(self, sandbox: int) -> None: ...
