"""The root of Aliquot's errors, and the errors of the core, sorted by who is at fault.

AliquotError
├── InputError        the user: a file, option or request; the text names the field and accepted values
└── SchedulerError    inside the core
    ├── EventError      the shell: an event that cannot happen now; the state is unchanged
    ├── PolicyError     the policy: a decision that cannot be carried out
    └── InvariantError  the core itself: its counters contradict each other
"""

from collections.abc import Sequence


class AliquotError(Exception):
    """The root of all errors that Aliquot raises on purpose."""


class InputError(AliquotError):
    """The user's input cannot be used. The text names the field and the values it accepts."""


class SchedulerError(AliquotError):
    """Something went wrong between the core, its policies and its shell."""


class EventError(SchedulerError):
    """The shell reported something that cannot have happened."""


class PolicyError(SchedulerError):
    """A policy chose something that cannot be carried out."""


class InvariantError(SchedulerError):
    """The core's counters contradict each other after a step."""


def describe(error: EventError, event: object, events: Sequence[object]) -> str:
    """Return the error of an event with its number in the step."""
    number = next(number for number, each in enumerate(events) if each is event)
    return f"event {number} of {len(events)}, {type(event).__name__}: {error}"
