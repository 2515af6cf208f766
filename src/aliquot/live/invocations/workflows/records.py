"""Records of executions as they are stored: what is known about one, and the entries of its log."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from aliquot.core.admission.records import Late
from aliquot.live.invocations.activations import response_of
from aliquot.live.node.base import Status
from aliquot.live.store.records import Activation
from aliquot.workflow.interpreter import Event, Execution, Finish
from aliquot.workflow.interpreter.commands import ABORTED, SUCCEEDED, TIMED_OUT
from aliquot.workflow.values import Value, decode_object, describe_object, encode_object

KIND = "workflow"


class ExecutionInfo(Struct, frozen=True, omit_defaults=True):
    """Facts about an execution that a server needs, besides its definition and its log, to take it up."""

    namespace: str  # name of the caller's namespace
    path: str  # `namespace/name` of the workflow's action
    version: str
    started_ms: int
    binding: str = ""
    cause: str = ""  # the activation that it is part of
    session: str = ""
    transaction: str = ""
    trace: str = ""  # as `pack_trace` writes it
    parent: str = ""  # the execution whose task it is; its own id is that of the task
    depth: int = 0  # how many executions it is inside of
    timeout_s: float | None = None  # after which it ends, in place of the definition's TimeoutSeconds
    deadline_s: float | None = None  # counted from its arrival
    cost_limit: float | None = None
    late: Late = Late.RUN
    promised: bool = False  # that it keeps these limits


class TaskBegun(Struct, frozen=True, tag=True):
    """A task that may run a bounded number of times was about to begin. The interpreter does not see this entry."""

    task: str


LogEntry = Event | TaskBegun
Log = Sequence[tuple[float, LogEntry]]
_encode = msgspec.msgpack.Encoder(enc_hook=encode_object).encode
_log = msgspec.msgpack.Decoder(list[tuple[float, LogEntry]], ext_hook=decode_object)
_info = msgspec.msgpack.Decoder(ExecutionInfo)
_json = msgspec.json.Encoder(enc_hook=describe_object).encode


def pack_log(entries: Log) -> bytes:
    """Return one row of a log: the events of a step with their times."""
    return _encode(entries)


def unpack_log(rows: Iterable[bytes]) -> list[tuple[float, LogEntry]]:
    """Return the entries of a log from its rows."""
    return [entry for row in rows for entry in _log.decode(row)]


def pack_info(info: ExecutionInfo) -> bytes:
    return _encode(info)


def unpack_info(body: bytes) -> ExecutionInfo:
    return _info.decode(body)


class Result(Struct, frozen=True):
    """The end of an execution as its activation shows it."""

    status: Status
    body: bytes  # JSON


class StoredOutcome(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The end of an execution as it is stored: its output, or its error and cause, and how long its tasks ran."""

    output: Value | UnsetType = UNSET
    error: str | UnsetType | None = UNSET
    cause: str | UnsetType | None = UNSET
    device_ms: dict[str, float] = {}  # by device
    redrives: int = 0

    def as_finish(self, status: str) -> Finish:
        """Return the command that ended the execution."""
        output = None if self.output is UNSET else self.output
        return Finish(status, output, self.error or None, self.cause or None)


def pack_outcome(finish: Finish, machine: Execution) -> bytes:
    """Return the end of an execution as it is stored, as JSON."""
    device_ms, redrives = machine.device_ms, machine.redrives
    if finish.status == SUCCEEDED:
        return _json(StoredOutcome(finish.output, device_ms=device_ms, redrives=redrives))
    return _json(StoredOutcome(error=finish.error, cause=finish.cause, device_ms=device_ms, redrives=redrives))


def read_outcome(body: bytes) -> StoredOutcome:
    """Return the end of an execution. One that runs has an empty body."""
    return msgspec.json.decode(body, type=StoredOutcome) if body else StoredOutcome()


def result_of(finish: Finish) -> Result:
    """Return the result of a workflow as that of an action, which is an object or an array."""
    if finish.status == SUCCEEDED:
        output = finish.output
        return Result(Status.SUCCESS, _json(output if isinstance(output, dict | list) else {"value": output}))
    names = {ABORTED: "Execution.Stopped", TIMED_OUT: "States.Timeout"}
    name = finish.error or names.get(finish.status, "Execution.Failed")
    return Result(Status.APPLICATION_ERROR, _json({"error": {"name": name, "cause": finish.cause or ""}}))


def execution_record(
    execution: str,
    owner: str,
    info: ExecutionInfo,
    finish: Finish,
    end_ms: int,
    tasks: Sequence[str],
    pickled: bytes | memoryview | None = None,
    notes: Mapping[str, Value] | None = None,
) -> Activation:
    """Return the activation record of an execution that has ended. Its logs are the ids of its tasks.

    `pickled` is the output with its objects, if it has some. `notes` are further annotations.
    """
    result = result_of(finish)
    annotations: dict[str, Value] = {"path": info.path, "kind": KIND, "status": finish.status, "waitTime": 0}
    annotations |= {"binding": info.binding} if info.binding else {}
    annotations |= {"session": info.session} if info.session else {}
    annotations |= {"execution": info.parent} if info.parent else {}
    annotations |= {"traceparent": info.trace.partition(" ")[0]} if info.trace else {}
    annotations |= notes or {}
    name = info.path.partition("/")[2]
    end_ms = max(end_ms, info.started_ms)
    summary = {
        "annotations": [{"key": key, "value": value} for key, value in annotations.items()],
        "namespace": info.namespace,
        **({"cause": info.cause} if info.cause else {}),
        "activationId": execution,
        "start": info.started_ms,
        "end": end_ms,
        "duration": end_ms - info.started_ms,
        "statusCode": int(result.status),
        "name": name.rpartition("/")[2],
        "version": info.version,
        "publish": False,
    }
    response, _ = response_of(result.status, result.body)
    return Activation(
        execution, owner, name, info.started_ms, end_ms, _json(summary), response, _json(tasks), pickled,
        session=info.session or None,
    )  # fmt: skip
