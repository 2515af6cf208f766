"""What the SDK raises on purpose, by whose fault it is. What a remote function raises comes as its own type instead.

SdkError
├── UsageError       the caller's code: an argument that does not parse, a function that cannot be deployed
├── NoServerError    no platform is configured, or none answers there
├── KeyRefusedError  the platform does not know the key
├── NotFoundError    there is no such function or activation
├── RefusedError     the platform refuses the request, and says why
│   └── BusyError    too many at once or in a minute, or the platform is stopping: later it may work
├── FunctionError    the function did not answer as it must: crashed, ran out of time or memory, does not import
├── RemoteError      the function raised, or returned, something that cannot be brought into this process
└── PlatformError    the platform's own fault
"""


class SdkError(Exception):
    """The root: catch this to catch everything but what the function itself raised."""


class UsageError(SdkError, ValueError):
    """The text names the argument and what it takes."""


class NoServerError(SdkError, ConnectionError):
    """The text says where was looked, and how to start a platform."""


class KeyRefusedError(SdkError):
    """The key is wrong, or of another platform."""


class NotFoundError(SdkError, LookupError):
    """The platform answers, but does not have what was asked for."""


class RefusedError(SdkError):
    """`status` is HTTP's; `transaction` finds the request in the server's log."""

    def __init__(self, text: str, *, status: int = 0, transaction: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.transaction = transaction


class BusyError(RefusedError):
    """Nothing was begun: the call may be made again."""


class FunctionError(SdkError):
    """`activation_id` finds its record and its logs."""

    def __init__(self, text: str, *, activation_id: str = "") -> None:
        super().__init__(text)
        self.activation_id = activation_id


class RemoteError(FunctionError):
    """The text is what the function's side said; its type or its module is not here."""


class PlatformError(FunctionError):
    """Worth a report: the text and the activation say what happened."""
