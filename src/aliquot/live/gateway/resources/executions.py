"""Endpoints for executions of workflows: start, list, read, history, stop, redrive, and answers to their tasks."""

from collections.abc import Awaitable
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta

from aliquot.core.units import KIB, MIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway.entities.common import PAGE
from aliquot.live.gateway.entities.workflows import WorkflowCheck
from aliquot.live.gateway.http.events import END, HistoryStream, ResponseLimits, wants_events
from aliquot.live.gateway.http.limits import limit_headers, limits_of
from aliquot.live.gateway.http.names import check_activation_id, check_name
from aliquot.live.gateway.http.query import epoch, flag, number, page_of
from aliquot.live.gateway.http.refusal import Refusal, malformed_query, not_found
from aliquot.live.gateway.http.routing import Endpoint, Query, Request, Response, json_response, read_json
from aliquot.live.gateway.resources import execution_views as views
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.errors import NotPromisedError
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.objective import CallObjective, declared_limits
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.trace_context import trace_of
from aliquot.live.invocations.workflows.control import ExecutionControl, NameInUseError, TaskAnswer
from aliquot.live.invocations.workflows.definitions import MAX_DEFINITION_BYTES
from aliquot.live.invocations.workflows.options import StartOptions
from aliquot.live.store.base import Store
from aliquot.live.store.executions import ExecutionQuery
from aliquot.live.store.ids import Ids
from aliquot.live.store.records import FullName
from aliquot.workflow.errors import EventRefusedError

_BASE = "/api/v1/namespaces/{namespace}"
_WORKFLOW = _BASE + "/workflows/{name}/executions"
_PACKAGED = _BASE + "/workflows/{package}/{name}/executions"
_CHECK = _BASE + "/workflows/check"
_ALL = _BASE + "/executions"
_ONE = _ALL + "/{id}"
_TASKS = _BASE + "/tasks"
_MAX_INPUT_BYTES = 2 * MIB  # of a body with a value of 1 MB and escapes in its text
_MAX_EVENTS = 1000
_STATUSES = ("RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
_FILTERS = (
    Query("workflow", str, "the workflow's name: a or pkg/a"),
    Query("status", views.ExecutionStatus, "the status of the executions"),
    Query("since", int, "earliest start, in milliseconds since the epoch"),
    Query("upto", int, "latest start, in milliseconds since the epoch"),
)
_DESCRIBED = (Query("definition", bool, "with the definition that the execution began with, as text"),)
_HISTORY = (
    Query("after", Annotated[int, Meta(ge=0)], "the id of the last event before the page"),
    Query("limit", Annotated[int, Meta(ge=1, le=_MAX_EVENTS)], "maximum number of events"),
    Query("reverse", bool, "latest events first; `after` is then the id of the event after the page"),
)


class ExecutionEndpoints:
    """Handles requests for executions of workflows."""

    def __init__(
        self, platform: Platform, store: Store, catalogue: Catalogue, metrics: Metrics, responses: ResponseLimits
    ) -> None:
        self._control = ExecutionControl(platform.workflows, store)
        self._check = WorkflowCheck(platform, catalogue.resolve)
        self._catalogue = catalogue
        self._metrics = metrics
        self._responses = responses
        self._ids = Ids()

    def endpoints(self) -> list[Endpoint]:
        started = {200: views.ExecutionId, 201: views.ExecutionId}
        listed = list[views.ExecutionItem] | views.ExecutionCount
        begin = [
            Endpoint(
                "POST", path, self.start, "Start an execution of a workflow", started, body=views.ExecutionPost,
                max_bytes=_MAX_INPUT_BYTES, statuses=(404, 409, 413, 415, 429),
            )
            for path in (_WORKFLOW, _PACKAGED)
        ]  # fmt: skip
        done = {200: views.ExecutionId}
        return [
            Endpoint(
                "POST", _CHECK, self.check, "Check the definition of a workflow", {200: views.CheckView},
                body=views.CheckPost, max_bytes=2 * MAX_DEFINITION_BYTES, statuses=(413, 415),
            ),
            *begin,
            Endpoint("GET", _ALL, self.list, "List executions", {200: listed}, query=PAGE + _FILTERS),
            Endpoint(
                "GET", _ONE, self.get, "Read an execution", {200: views.ExecutionView}, query=_DESCRIBED,
                statuses=(404,),
            ),
            Endpoint(
                "GET", _ONE + "/history", self.history, "Read the history of an execution",
                {200: views.HistoryView, 204: None}, query=_HISTORY, statuses=(404,), streams=True,
            ),
            Endpoint(
                "POST", _ONE + "/stop", self.stop, "Stop an execution", done, body=views.StopPost,
                max_bytes=64 * KIB, statuses=(404, 409, 413, 415),
            ),
            Endpoint(
                "POST", _ONE + "/redrive", self.redrive, "Take up an execution where it failed", done,
                statuses=(404, 409),
            ),
            *self._task_endpoints(),
        ]  # fmt: skip

    def _task_endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "POST", f"{_TASKS}/{name}", handler, summary, {200: dict}, body=body, max_bytes=_MAX_INPUT_BYTES,
                statuses=(404, 409, 413, 415),
            )
            for name, handler, summary, body in (
                ("success", self.succeed, "Answer a task with its output", views.SuccessPost),
                ("failure", self.fail, "Answer a task with an error", views.FailurePost),
                ("heartbeat", self.beat, "Report that a task is alive", views.HeartbeatPost),
            )
        ]  # fmt: skip

    async def start(self, request: Request) -> Response:
        post: views.ExecutionPost = read_json(request.body or b"{}", views.ExecutionPost)
        principal = request.principal
        assert principal is not None  # noqa: S101 - the endpoint requires a key
        names = [check_name(name) for name in request.names.values()]
        resolved = self._catalogue.resolve(principal.name, FullName(principal.name, "/".join(names)))
        if not resolved.workflow:
            raise Refusal(409, f"The action '{resolved.function}' is no workflow; invoke it.")
        limiter = principal.limiter
        limiter.check()
        defaults = {pair.key: pair.value for pair in resolved.action.parameters if not pair.init}
        value = {} if post.input is UNSET else post.input
        value = {**defaults, **value} if isinstance(value, dict) else value
        call = Call(
            self._ids(), principal.namespace, resolved, msgspec.json.encode(value), durable=True,
            transaction=request.transaction, trace=trace_of(request.headers),
        )  # fmt: skip
        limits = limits_of(limit_headers(request.headers), declared_limits(resolved))
        if limits is not None:
            call.objective = CallObjective(limits, declared=limit_headers(request.headers) is None)
        limiter.begin(call)

        def done(call: Call) -> None:
            call.done = None
            limiter.end()
            self._metrics.count(call)

        call.done = done
        name, timeout_s = post.name or "", post.timeout or None
        try:
            known = await self._control.start(call, StartOptions(name, value, timeout_s))
        except NameInUseError as error:
            limiter.end()
            raise Refusal(409, str(error)) from error
        except BaseException as error:
            limiter.end()
            if isinstance(error, NotPromisedError):
                self._metrics.count(call)
            raise
        if known is not None:
            limiter.end()
        return json_response(views.ExecutionId(known or call.id), 200 if known is not None else 201)

    async def list(self, request: Request) -> Response:
        page = page_of(request.fields, "executions")
        status = request.fields.get("status")
        if status is not None and status not in _STATUSES:
            raise malformed_query("status", f"'{status}' is not one of {', '.join(_STATUSES)}")
        query = ExecutionQuery(
            request.owner,
            request.fields.get("workflow", "").strip() or None,
            status,
            epoch(request.fields, "since"),
            epoch(request.fields, "upto"),
            page.skip,
            page.limit,
        )
        if page.count:
            return json_response(views.ExecutionCount(await self._control.count(query)))
        return json_response([views.execution_item(row) for row in await self._control.page(query)])

    async def get(self, request: Request) -> Response:
        with_definition = flag(request.fields, "definition")
        found = await self._control.describe(request.owner, _id(request))
        if found is None:
            raise not_found()
        view = views.execution_view(found)
        if with_definition:
            text = await self._control.definition(request.owner, _id(request))
            view.definition = UNSET if text is None else text.decode()
        return json_response(view)

    async def history(self, request: Request) -> Response:
        after = _natural(request, "after", 0)
        if wants_events(request.headers.get(b"accept")):
            return await self._follow(request, after)
        limit = _natural(request, "limit", _MAX_EVENTS)
        if not 1 <= limit <= _MAX_EVENTS:
            raise malformed_query("limit", f"The value '{limit}' is not in the range of 1 to {_MAX_EVENTS}.")
        reverse = flag(request.fields, "reverse")
        events = await self._control.history(request.owner, _id(request))
        if events is None:
            raise not_found()
        rest = events[: after - 1 if after else None][::-1] if reverse else events[after:]
        page = rest[:limit]
        return json_response(views.HistoryView(page, page[-1]["id"] if len(rest) > limit else UNSET))

    async def _follow(self, request: Request, after: int) -> Response:
        last_id = request.headers.get(b"last-event-id", b"")
        if last_id == END:  # a 204 keeps browsers from reconnecting
            return Response(204, b"")
        seen = number(last_id.decode("latin-1"))
        events = HistoryStream(self._responses, request.transaction)
        events.open(request.namespace)
        if not await self._control.follow(request.owner, _id(request), events, after if seen is None else seen):
            raise not_found()
        return Response(200, b"", events=events)

    async def stop(self, request: Request) -> Response:
        post: views.StopPost = read_json(request.body or b"{}", views.StopPost)
        return await self._change(request, self._control.stop(request.owner, _id(request), post.error, post.cause))

    async def redrive(self, request: Request) -> Response:
        return await self._change(request, self._control.redrive(request.owner, _id(request)))

    async def _change(self, request: Request, change: Awaitable[bool]) -> Response:
        try:
            found = await change
        except EventRefusedError as refusal:
            raise Refusal(409, str(refusal)) from refusal
        if not found:
            raise not_found()
        return json_response(views.ExecutionId(_id(request)))

    async def succeed(self, request: Request) -> Response:
        post: views.SuccessPost = read_json(request.body or b"{}", views.SuccessPost)
        return await self._answer(request, post.token, TaskAnswer(post.output))

    async def fail(self, request: Request) -> Response:
        post: views.FailurePost = read_json(request.body or b"{}", views.FailurePost)
        return await self._answer(request, post.token, TaskAnswer(error=post.error, cause=post.cause))

    async def beat(self, request: Request) -> Response:
        post: views.HeartbeatPost = read_json(request.body or b"{}", views.HeartbeatPost)
        return await self._answer(request, post.token, TaskAnswer(beat=True))

    async def _answer(self, request: Request, token: str, answer: TaskAnswer) -> Response:
        try:
            found = await self._control.answer(request.owner, token, answer)
        except EventRefusedError as refusal:
            raise Refusal(409, str(refusal)) from refusal
        if not found:
            raise not_found()
        return json_response({})

    async def check(self, request: Request) -> Response:
        post: views.CheckPost = read_json(request.body or b"{}", views.CheckPost)
        given = post.definition
        text = given.encode() if isinstance(given, str) else msgspec.json.encode(given)
        complaints = await self._check.check_text(text, request.namespace)
        shown = [views.ComplaintView(one.state, one.field, one.reason, one.warning) for one in complaints]
        return json_response(views.CheckView(all(one.warning for one in complaints), shown))


def _id(request: Request) -> str:
    return check_activation_id(request.names["id"])


def _natural(request: Request, name: str, default: int) -> int:
    text = request.fields.get(name)
    value = default if text is None else number(text)
    if value is None or value < 0:
        raise malformed_query(name, f"The value '{text}' is not a natural number.")
    return value
