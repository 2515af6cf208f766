"""An execution in memory: the pure machine, the call that it answers, and the events that wait for their step."""

from asyncio import Future
from collections import Counter, deque

from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.limited_executions import LimitedExecution
from aliquot.live.invocations.workflows.definitions import Definition
from aliquot.live.invocations.workflows.followed_history import FollowedHistory
from aliquot.live.invocations.workflows.objects import Held, ValueWithObjects
from aliquot.live.invocations.workflows.records import ExecutionInfo
from aliquot.live.store.executions import ExecutionTimer
from aliquot.workflow.interpreter import Event, Execution
from aliquot.workflow.stages import PossibleStates

MAX_LISTED_TASKS = 1000  # in the logs of the record

Posted = tuple[Event, "Future[None] | None"]  # an event, and who waits until it is durable


class ExecutionRun:
    """One execution that this server runs. It follows its tasks, and passes their lines on to its own followers."""

    __slots__ = (
        "begun_tasks", "blocking", "call", "children", "definition", "express", "given", "has_ended", "has_objects",
        "histories", "inbox", "info", "inner_ms", "limited", "log_bytes", "machine", "note", "objects", "possible",
        "queue_entry", "recovering", "rows", "stepping", "stored_timer", "tasks", "unwritten",
    )  # fmt: skip
    closed = False

    def __init__(
        self, call: Call, info: ExecutionInfo, definition: Definition, machine: Execution, *, express: bool
    ) -> None:
        self.call = call
        self.info = info
        self.note = note("execution", call.id)  # of the records of its tasks
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
        self.inner_ms: dict[str, dict[str, float]] = {}  # device time of express executions that were tasks
        self.begun_tasks: Counter[str] = Counter()  # runs of tasks that may run a bounded number of times
        self.children: dict[str, None] = {}  # tasks that are executions in the store
        self.queue_entry = ""  # of an accepted express execution until its first task begins
        self.blocking = False  # a client waits for the result
        self.recovering = False  # its tasks may have run already
        self.objects: Held = {}  # in memory, by id: those of an express execution, and those that have just come
        self.given: ValueWithObjects | None = None  # the input until it has begun, if it has objects
        self.histories: list[FollowedHistory] = []  # that clients follow
        self.limited: LimitedExecution | None = None  # if it has a deadline or a cost limit
        self.possible = PossibleStates()
        self.has_objects = False  # it has, or had, some on disk
        self.unwritten: list[str] = []  # of them, those that the next step of a durable execution writes

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

    def give_back_stages(self) -> None:
        """Give back the stages that will not be called any more, if the execution has a plan."""
        if self.limited is not None and self.limited.uncalled:
            self.limited.keep_only(self.possible.of(self.machine.root))

    def awaits(self, task: str) -> bool:
        """Return whether a task has not ended yet, or waits for its answer."""
        return task in self.machine.tasks.frames

    def hold(self, held: Held) -> None:
        """Keep objects in memory. Those of a durable execution are written with its next step."""
        if held:
            self.objects.update(held)
            if not self.express:
                self.unwritten += held
                self.has_objects = True

    def drop_written(self) -> None:
        """Forget the objects of a durable execution that are on disk. Calls under way have their own."""
        if self.objects and not self.express:
            self.objects = {name: self.objects[name] for name in self.unwritten}

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
        histories = any(not one.closed for one in self.histories)
        return self.blocking or histories or any(not follower.closed for follower in self.call.followers)

    def follow_history(self, history: FollowedHistory) -> None:
        """Pass each step to this history when it is durable."""
        self.histories = [*(one for one in self.histories if not one.closed), history]
