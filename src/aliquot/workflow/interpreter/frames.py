"""Frames and forks: where an execution stands.

A frame runs one machine: the whole definition, a branch of Parallel, or an iteration of Map. It stands in one state.
A fork is a Parallel or Map state under way: the frames of its branches or iterations, and their results.
"""

from collections.abc import Mapping
from typing import Optional

from aliquot.workflow.language.records import Machine, State
from aliquot.workflow.values import Value

READY = "ready"  # will enter its state, or leave it, in this step
TASK = "task"
CALLBACK = "callback"  # the run has ended, and its answer is awaited
QUEUED = "queued"  # too many tasks are in flight
TIMER = "timer"
RETRY = "retry"
FORK = "fork"
EVALUATION = "evaluation"
FAILED = "failed"
ABORTED = "aborted"
DONE = "done"


class Frame:
    """A machine under way, with its variables and the state it stands in.

    Variables are never changed in place: frames inside share the mapping of the frame around them.
    """

    __slots__ = (
        *("attempt", "entered_at", "entry", "evaluation", "fork", "heartbeat_s", "index", "input", "item"),
        *("machine", "noted", "parent", "phase", "retries", "state", "task", "timers", "values", "variables", "waits"),
    )

    def __init__(
        self,
        machine: Machine,
        value: Value,
        variables: Mapping[str, Value],
        parent: Optional["Fork"] = None,
        index: int = 0,
    ) -> None:
        self.machine = machine
        self.state: State = machine.states[machine.start]
        self.input = value
        self.variables = variables
        self.parent = parent
        self.index = index
        self.item: dict[str, Value] | None = parent.frame.item if parent else None
        self.waits = READY
        self.entry = 0
        self.attempt = 0
        self.entered_at = 0.0
        self.retries: dict[int, int] = {}
        self.task: str | None = None
        self.timers: list[int] = []
        self.heartbeat_s: float | None = None
        self.fork: Fork | None = None
        self.evaluation: int | None = None
        self.phase = ""
        self.values: dict[str, Value] = {}  # the result or the error of the state, for its last phase
        self.noted = 0  # the number of the last event in the history


class Fork:
    """A Parallel or Map state under way. `frames` has the running, failed and aborted ones by their index."""

    __slots__ = (
        *("active", "failures", "frame", "frames", "inputs", "items", "limit", "next", "percentage", "results"),
        "tolerated",
    )

    def __init__(self, frame: Frame, inputs: list[Value]) -> None:
        self.frame = frame
        self.inputs = inputs
        self.items: list[Value] | None = None  # of Map
        self.results: list[Value] = [None] * len(inputs)
        self.frames: dict[int, Frame] = {}
        self.next = 0  # the index of the next branch or iteration to start
        self.limit = 0  # how many may run at once; 0: all
        self.active = 0  # how many run
        self.failures = 0
        self.tolerated = 0
        self.percentage = 0.0

    def is_tolerated(self) -> bool:
        """Return whether the failures so far are within the bounds of the Map state."""
        if self.failures <= self.tolerated:
            return True
        return self.percentage > 0 and self.failures * 100 <= self.percentage * len(self.inputs)
