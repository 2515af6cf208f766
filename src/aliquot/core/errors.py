"""Every error of Aliquot, by whose fault it is.

AliquotError
├── InputError        the user's file, option or request: names the place and what is expected
└── SchedulerError    inside the core
    ├── EventError      the shell's fault: an event that cannot happen now; the state is untouched
    ├── PolicyError     the policy's fault: a decision that cannot be carried out
    └── InvariantError  the core's own fault: its books do not balance
"""


class AliquotError(Exception):
    """The root: catch this to catch everything that Aliquot raises on purpose."""


class InputError(AliquotError):
    """What the user gave cannot be used; the text names the field and what it takes."""


class SchedulerError(AliquotError):
    """Something went wrong between the core, its policies and its shell."""


class EventError(SchedulerError):
    """The shell reported something that cannot have happened."""


class PolicyError(SchedulerError):
    """A policy chose something that cannot be carried out."""


class InvariantError(SchedulerError):
    """The core's books do not balance after a step."""
