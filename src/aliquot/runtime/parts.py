"""The results of a generator: each part goes to the caller as it comes, or all of them are returned as a list."""

from __future__ import annotations

import os
import pickle
from base64 import b64encode
from types import GeneratorType
from typing import Any

from . import answers
from .control_channel import ChannelError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .control_channel import ControlChannel


def collect(result: Any, channel: ControlChannel | None, *, pickled: bool) -> Any:  # noqa: ANN401 - the function's
    """Return the result of a function. The parts of a generator go to a caller that takes them as they come.

    Each part waits until the caller has taken enough of those before. A caller that has gone ends the generator.
    """
    if type(result) is not GeneratorType:
        return result
    if channel is None or os.environ.get("ALIQUOT_STREAM") != os.environ.get("__OW_ACTIVATION_ID"):
        return list(result)
    count = 0
    for part in result:
        count += 1
        try:
            goes_on = channel.send_part(_encode(part, pickled=pickled))
        except ChannelError as error:
            raise ValueError(str(error)) from None  # of a class that the caller has, too
        if not goes_on:
            result.close()
            return {"parts": count, "stopped": True}
    return {"parts": count}


def _encode(part: Any, *, pickled: bool) -> bytes:  # noqa: ANN401 - likewise
    """Return a part as JSON. A pickle is a text in base64."""
    if pickled:
        return b'"%b"' % b64encode(pickle.dumps(part, protocol=5))
    return answers.to_json(part)
