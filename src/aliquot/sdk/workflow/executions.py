"""Executions of workflows on the platform: start one, wait for its result, look at it, stop it, take it up again."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast

from aliquot.sdk import answers
from aliquot.sdk.calls import NAMESPACE, action_path, activation_path, entity_path
from aliquot.sdk.client import Client
from aliquot.sdk.dual import dual
from aliquot.sdk.errors import ExecutionError, FunctionError, PlatformError, UsageError
from aliquot.sdk.events import ACCEPT, EVENTS_TIMEOUT_S, read_events
from aliquot.sdk.wire import JSON, PICKLE, HttpRequest, Operation, ask, pause, to_json
from aliquot.sdk.workflow.exceptions import class_of
from aliquot.sdk.workflow.objects import encode_input, load_output

R = TypeVar("R")

EXECUTIONS = f"{NAMESPACE}/executions"
TASKS = f"{NAMESPACE}/tasks"
_FIRST_POLL_S, _LAST_POLL_S = 0.005, 0.5
_WRAPPED = ["value"]  # the keys of a result that is no object
_OBJECTS = "x-aliquot-objects"  # the header of a reply whose output has objects
_SUCCEEDED, _ACCEPTED, _MISSING = 200, 202, 404


class WorkflowName(NamedTuple):
    """A deployed workflow, and the module in which the classes of its errors are looked up."""

    action: str
    module: dict[str, Any]
    app: str = ""  # whose classes the objects of inputs and outputs may have
    limits: Mapping[str, str] = {}  # headers with the deadline and the cost limit of one execution


def begin(workflow: WorkflowName, value: Any, name: str = "") -> Operation[str]:  # noqa: ANN401 - the input
    """Start an execution and return its id. From then on a crash of the platform does not lose it."""
    given = encode_input(value, workflow.app)
    if given.has_objects:
        if name:
            raise UsageError("an execution with a name takes JSON of at most 1 MB as its input; use start without one")
        request = HttpRequest(
            "POST", action_path(workflow.action), {}, {"Content-Type": PICKLE, **workflow.limits}, given.body
        )
        return str(answers.check((yield from ask(request)), workflow.action).json()["activationId"])
    body = {"input": value, **({"name": name} if name else {})}
    path = entity_path("workflows", workflow.action) + "/executions"
    reply = yield from ask(HttpRequest("POST", path, {}, {"Content-Type": JSON, **workflow.limits}, encoded(body)))
    return str(answers.check(reply, workflow.action).json()["executionId"])


def call(workflow: WorkflowName, value: Any) -> Operation[Any]:  # noqa: ANN401 - the input
    """Run an execution and return its output, or raise its error."""
    query = {"blocking": "true", "result": "true"}
    given = encode_input(value, workflow.app)
    headers = {"Content-Type": given.content_type, **workflow.limits}
    reply = yield from ask(HttpRequest("POST", action_path(workflow.action), query, headers, given.body))
    execution = reply.headers.get(answers.ACTIVATION, "")
    if answers.is_pickled(reply):
        return load_output(reply.body, workflow.app)
    if reply.status == _ACCEPTED:  # the platform stops waiting for long calls
        return (yield from wait(workflow, str(reply.json()["activationId"]), None))
    if _OBJECTS in reply.headers:
        return (yield from wait(workflow, execution, None))
    if not execution:
        answers.check(reply, workflow.action)
    return (yield from _outcome(workflow, reply.json(), execution, succeeded=reply.status == _SUCCEEDED))


def wait(workflow: WorkflowName, execution: str, timeout_s: float | None) -> Operation[Any]:
    """Wait until an execution has ended, and return its output or raise its error."""
    until = None if timeout_s is None else time.monotonic() + timeout_s
    delay = _FIRST_POLL_S
    while True:
        path = f"{activation_path(execution)}/result"
        reply = yield from ask(HttpRequest("GET", path, headers={"Accept": PICKLE}, timeout_s=30))
        if answers.is_pickled(reply):
            return load_output(reply.body, workflow.app)
        if reply.status != _MISSING:
            found = answers.check(reply, workflow.action).json()
            return (yield from _outcome(workflow, found["result"], execution, succeeded=found["success"]))
        left = delay if until is None else until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{workflow.action}: the execution {execution} has not ended within {timeout_s:g} s")
        yield from pause(min(delay, left))
        delay = min(_LAST_POLL_S, delay * 1.5)


def _outcome(workflow: WorkflowName, result: Any, execution: str, *, succeeded: bool) -> Operation[Any]:  # noqa: ANN401
    """Return the output of an execution that has ended, or raise its error."""
    if succeeded:
        if isinstance(result, dict) and list(result) == _WRAPPED:
            return (yield from _unwrapped(result, execution))
        return result
    error = result.get("error") if isinstance(result, dict) else result
    if not isinstance(error, dict):
        raise FunctionError(f"{workflow.action}: {error or 'it failed and did not say why'}", activation_id=execution)
    raise raised(workflow, str(error.get("name", "")), str(error.get("cause", "")), execution)


def _unwrapped(result: dict[str, Any], execution: str) -> Operation[Any]:
    """Return the value of a result such as {"value": 1}, unless the execution itself returned this object."""
    reply = yield from ask(HttpRequest("GET", f"{EXECUTIONS}/{execution}"))
    found = reply.json() if reply.status == _SUCCEEDED else None  # an express execution is not kept
    return found["output"] if isinstance(found, dict) and "output" in found else result["value"]


def raised(workflow: WorkflowName, name: str, cause: str, execution: str) -> Exception:
    """Return the exception for the error of an execution: its own class, if it is Python's or of the app's module."""
    kind = class_of(name, workflow.module)
    error: Exception
    try:
        error = ExecutionError(name, cause, execution) if kind is None else kind(cause)
    except TypeError:  # its class takes other arguments
        error = ExecutionError(name, cause, execution)
    error.add_note(f"the execution {execution} of {workflow.action}: aliquot workflow history {execution}")
    return error


def encoded(value: object) -> bytes:
    """Return the JSON of an input, or refuse it."""
    try:
        return to_json(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the input of a workflow is JSON, which cannot hold this value: {error}") from error


class ExecutionHandle(Generic[R]):
    """An execution that was started. Any process can find it again by its id: `w.execution(id)`."""

    def __init__(self, workflow: WorkflowName, execution: str, client: Callable[[], Client]) -> None:
        self.id = execution
        self._workflow = workflow
        self._client = client

    def __repr__(self) -> str:
        return f"<execution {self.id} of {self._workflow.action}>"

    def client(self) -> Client:
        return self._client()

    @dual
    def result(self, timeout: float | None = None) -> Operation[R]:
        """Return its output, or raise its error. Raises `TimeoutError` after `timeout` seconds; it then still runs."""
        return cast("R", (yield from wait(self._workflow, self.id, timeout)))

    @dual
    def describe(self) -> Operation[dict[str, Any]]:
        """Return its status, input, output or error, and the states in which it stands."""
        reply = yield from ask(HttpRequest("GET", f"{EXECUTIONS}/{self.id}"))
        return cast("dict[str, Any]", answers.check(reply, f"execution {self.id}").json())

    @dual
    def status(self) -> Operation[str]:
        """Return RUNNING, SUCCEEDED, FAILED, TIMED_OUT or ABORTED."""
        reply = yield from ask(HttpRequest("GET", f"{EXECUTIONS}/{self.id}"))
        return str(answers.check(reply, f"execution {self.id}").json()["status"])

    @dual
    def history(self) -> Operation[list[dict[str, Any]]]:
        """Return all events of its history, with the event types of AWS."""
        return (yield from read_history(self.id, 0))

    @dual
    def graph(self) -> Operation[str]:
        """Return a picture of the workflow as SVG, with the states that the execution has entered."""
        reply = yield from ask(HttpRequest("GET", f"{EXECUTIONS}/{self.id}/graph"))
        return answers.check(reply, f"execution {self.id}").body.decode()

    def follow(self) -> Iterator[dict[str, Any]]:
        """Yield each event of its history as it comes, until the execution ends. This blocks."""
        return follow(self.client(), self.id)

    @dual
    def stop(self, error: str = "", cause: str = "") -> Operation[None]:
        """End the execution and what runs in it. Its error and cause are those that are given."""
        yield from change(self.id, "stop", {"error": error, "cause": cause})

    @dual
    def redrive(self) -> Operation[None]:
        """Take up a failed, stopped or timed-out execution where it ended. Results that are there are kept."""
        yield from change(self.id, "redrive", None)


def read_history(execution: str, after: int) -> Operation[list[dict[str, Any]]]:
    """Return the events of a history after an event."""
    events: list[dict[str, Any]] = []
    while True:
        query = {"after": events[-1]["id"] if events else after}
        reply = yield from ask(HttpRequest("GET", f"{EXECUTIONS}/{execution}/history", query))
        page = answers.check(reply, f"execution {execution}").json()
        events += page["events"]
        if "next" not in page:
            return events


def follow(client: Client, execution: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a history as they come, up to the end of the execution. A stream that breaks goes on."""
    last, what = 0, f"execution {execution}"
    while True:
        before = last
        path = f"{EXECUTIONS}/{execution}/history"
        request = HttpRequest("GET", path, {"after": last}, ACCEPT, timeout_s=EVENTS_TIMEOUT_S)
        try:
            for kind, event in read_events(client.lines(request, what), what, "end"):
                if kind == "history":
                    last = event["id"]
                    yield event
        except PlatformError:
            if last == before:  # nothing came, so another attempt would not help
                raise
        else:
            return


def is_end(event: dict[str, Any]) -> bool:
    """Return whether an event of a history is the end of its execution."""
    return str(event["type"]) in {"ExecutionSucceeded", "ExecutionFailed", "ExecutionTimedOut", "ExecutionAborted"}


def change(execution: str, what: str, body: dict[str, Any] | None) -> Operation[None]:
    """Stop an execution, or take it up again."""
    content, headers = (b"", {}) if body is None else (to_json(body), {"Content-Type": JSON})
    reply = yield from ask(HttpRequest("POST", f"{EXECUTIONS}/{execution}/{what}", {}, headers, content))
    answers.check(reply, f"execution {execution}")


def answer(kind: str, body: dict[str, Any]) -> Operation[None]:
    """Answer the token of a task that waits: with success or failure, or with a heartbeat."""
    reply = yield from ask(HttpRequest("POST", f"{TASKS}/{kind}", {}, {"Content-Type": JSON}, encoded(body)))
    answers.check(reply, "the task of this token")
