"""An execution in memory: the pure machine, the call that it answers, and the events that wait for their step."""

from asyncio import Future
from collections import deque

from aliquot.live.invocations.call import Call
from aliquot.live.invocations.workflows.definitions import Definition
from aliquot.live.invocations.workflows.records import ExecutionInfo
from aliquot.live.store.executions import ExecutionTimer
from aliquot.workflow.interpreter import Event, Execution

MAX_LISTED_TASKS = 1000  # in the logs of the record

Posted = tuple[Event, "Future[None] | None"]  # an event, and who waits until it is durable


class ExecutionRun:
    """One execution that this server runs. It follows its tasks, and passes their lines on to its own followers."""

    __slots__ = (
        "begun_tasks", "blocking", "call", "children", "definition", "express", "has_ended", "inbox", "info",
        "log_bytes", "machine", "queue_entry", "recovering", "rows", "stepping", "stored_timer", "tasks",
    )  # fmt: skip
    closed = False

    def __init__(
        self, call: Call, info: ExecutionInfo, definition: Definition, machine: Execution, *, express: bool
    ) -> None:
        self.call = call
        self.info = info
        self.definition = definition
        self.machine = machine
        self.express = express  # nothing of it is stored but its record
        self.inbox: deque[Posted] = deque()
        self.stepping = False  # a step is made or written now
        self.has_ended = False
        self.rows = 0  # of the log
        self.log_bytes = 0
        self.stored_timer: ExecutionTimer | None = None
        self.tasks: list[str] = []  # the first ones, for the record
        self.begun_tasks: set[str] = set()  # that must not run twice
        self.children: dict[str, None] = {}  # tasks that are executions in the store
        self.queue_entry = ""  # of an accepted express execution until its first task begins
        self.blocking = False  # a client waits for the result
        self.recovering = False  # its tasks may have run already

    @property
    def id(self) -> str:
        return self.call.id

    @property
    def owner(self) -> str:
        return self.call.namespace.owner

    @property
    def busy(self) -> bool:
        """True if tasks or evaluations are under way, which a server must take up again after a crash."""
        return bool(self.machine.tasks.running or self.machine.evaluations)

    @property
    def only_waits(self) -> bool:
        """True if nothing is under way but executions of their own, so that this one need not be in memory."""
        return not self.machine.evaluations and self.machine.tasks.running.keys() <= self.children.keys()

    def awaits(self, task: str) -> bool:
        """Return whether a task has not ended yet, or waits for its answer."""
        return task in self.machine.tasks.frames

    def note_task(self, task: str) -> None:
        """Remember the id of a task for the record."""
        if len(self.tasks) < MAX_LISTED_TASKS:
            self.tasks.append(task)

    def printed(self, line: str) -> None:
        """Pass a task's log line to the followers of the execution."""
        self.call.printed(line)

    def ended(self, call: Call) -> None:
        """Do nothing, since `done` handles the end of a task."""

    def is_followed(self) -> bool:
        """Return whether a client waits for the end, or follows the execution."""
        return self.blocking or any(not follower.closed for follower in self.call.followers)
