"""Take up executions from the store: replay the log, and find out what is still to be done."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.trace_context import unpack_trace
from aliquot.live.invocations.workflows.definitions import Definition, Definitions, machine_of, with_timeout
from aliquot.live.invocations.workflows.records import ExecutionInfo, LogEntry, TaskBegun, unpack_info, unpack_log
from aliquot.live.invocations.workflows.run import ExecutionRun
from aliquot.live.store.executions import ExecutionTimer, StoredExecution
from aliquot.live.store.records import WORKFLOW, Action, Exec, Namespace
from aliquot.workflow.interpreter import Command, Evaluate, Execution, RunTask
from aliquot.workflow.language import Machine

MAX_EVENTS_ON_THE_LOOP = 200  # a longer log is replayed in a thread, by a machine of its own


def restored_call(execution: str, owner: str, info: ExecutionInfo) -> Call:
    """Return the call that an execution answers, after its caller has gone."""
    namespace, _, name = info.path.partition("/")
    action = Action(namespace, name, info.version, Exec(WORKFLOW), revision=f"execution {execution}")
    resolved = ResolvedAction(info.namespace, name, action)
    return Call(
        execution,
        Namespace(info.namespace, owner=owner),
        resolved,
        b"{}",
        durable=True,
        transaction=info.transaction,
        cause=info.cause,
        session=info.session,
        trace=unpack_trace(info.trace),
    )


async def restore(
    stored: StoredExecution, definitions: Definitions, secret: bytes
) -> tuple[ExecutionRun, list[Command]]:
    """Return an execution as it was after its last event, and the commands that are still to be performed."""
    row, info = stored.row, unpack_info(stored.row.body)
    log = unpack_log(stored.events)
    if len(log) > MAX_EVENTS_ON_THE_LOOP:
        machine = machine_of(stored.definition)
        definition = Definition(row.digest, stored.definition, machine)
        execution, commands = await asyncio.to_thread(_replay, with_timeout(machine, info), log, secret)
    else:
        definition = definitions.of_text(row.digest, stored.definition)
        execution, commands = _replay(with_timeout(definition.machine, info), log, secret)
    call = restored_call(row.id, row.owner, info)
    run = ExecutionRun(call, info, definition, execution, express=False)
    run.rows = len(stored.events)
    run.log_bytes = len(row.body) + sum(map(len, stored.events))
    run.recovering = run.has_objects = True  # it may have some
    run.begun_tasks = Counter(entry.task for _, entry in log if isinstance(entry, TaskBegun))
    for command in commands:
        if isinstance(command, RunTask):
            run.note_task(command.task)
    run.stored_timer = ExecutionTimer(execution.announced, run.busy)
    return run, [command for command in commands if _is_open(execution, command)]


def _replay(machine: Machine, log: Sequence[tuple[float, LogEntry]], secret: bytes) -> tuple[Execution, list[Command]]:
    execution = Execution(machine, secret=secret)
    commands: list[Command] = []
    for at, entry in log:
        if not isinstance(entry, TaskBegun):
            commands += execution.step([entry], at)
    return execution, commands


def _is_open(execution: Execution, command: Command) -> bool:
    """Return whether a command of the past has not been answered yet."""
    if isinstance(command, RunTask):
        return command.task in execution.tasks.running
    return isinstance(command, Evaluate) and command.evaluation in execution.evaluations
