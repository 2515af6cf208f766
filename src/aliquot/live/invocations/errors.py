"""Errors of a call that is not taken.

    CallRefusedError        the call was refused before it ran; the text tells the caller why
      PayloadError          the payload is not a JSON object, or sets a parameter that it may not set
      LimitsError           it has a deadline or a cost limit, and no plan can be made for it
      RateLimitError        the namespace has used up its calls per minute or its calls at once
      ObjectsRefusedError   the call names objects that are not there, or its outputs have no room
      NotPromisedError      the call cannot meet its deadline or its cost limit now
    OverloadedError         the platform cannot take any call now: it is stopping, or the store fails

The gateway turns them into HTTP statuses. The texts are those of OpenWhisk.
"""

from aliquot.core.admission.records import Refusal

MALFORMED = "The request content was malformed:\n"
NOT_ALLOWED_PARAMETERS = "Request defines parameters that are not allowed (e.g., reserved properties)."


class CallRefusedError(Exception):
    """The call was refused before it ran. The text tells the caller why."""


class PayloadError(CallRefusedError):
    """The payload is not a JSON object, or sets a parameter that it may not set."""


class LimitsError(CallRefusedError):
    """The call has a deadline or a cost limit, and no plan can be made for it. The text names the state."""


class RateLimitError(CallRefusedError):
    """The namespace has used up its calls per minute or its calls at once."""


class NotPromisedError(CallRefusedError):
    """The call cannot meet its deadline or its cost limit now. `refusal` has the figures and what would be accepted."""

    def __init__(self, text: str, refusal: Refusal) -> None:
        super().__init__(text)
        self.refusal = refusal


class ObjectsRefusedError(CallRefusedError):
    """The call names objects that are not there, or its outputs have no room. `status` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class OverloadedError(Exception):
    """The platform cannot take the call now: it is stopping, or the store fails. The text says which."""


def malformed_payload(why: str) -> PayloadError:
    """Return the error for a payload that cannot be read."""
    return PayloadError(MALFORMED + why)
