"""The root of Aliquot's errors, and the errors of the core, sorted by who is at fault.

AliquotError
├── InputError        the user: a file, option or request; the text names the field and accepted values
└── SchedulerError    inside the core
    ├── EventError      the shell: an event that cannot happen now; the state is unchanged
    ├── PolicyError     the policy: a decision that cannot be carried out
    └── InvariantError  the core itself: its counters contradict each other
"""


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
