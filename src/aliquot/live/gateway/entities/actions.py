"""Endpoints for actions: create, update, read, list, delete."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from aliquot.core.errors import InputError
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.entities import Entities
from aliquot.live.catalogue.images import OPTION, find_image
from aliquot.live.catalogue.needs import check_batch, parse_needs
from aliquot.live.catalogue.resolving import readable_package, resolve_action
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import (
    OVERWRITE,
    PAGE,
    annotation_pairs,
    check_size,
    common_fields,
    common_view_fields,
    find,
    find_replaced,
    list_response,
    name_of,
    pair_views,
    updated_parameters,
)
from aliquot.live.gateway.entities.kernel_graphs import check_constants, try_out, with_layouts
from aliquot.live.gateway.entities.kinds import resolve_kind
from aliquot.live.gateway.entities.schedules import ActionSchedules
from aliquot.live.gateway.entities.sequences import check_components, read_components
from aliquot.live.gateway.entities.workflows import WorkflowCheck
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.refusal import Refusal, malformed, too_large
from aliquot.live.gateway.http.responses import PICKLE, SAFETENSORS
from aliquot.live.gateway.http.routing import (
    Endpoint,
    EndpointAccess,
    Query,
    Request,
    Response,
    handled_elsewhere,
    json_response,
    read_json,
)
from aliquot.live.gateway.settings import GatewaySettings, Range
from aliquot.live.invocations.kernel_trials import KernelTrials
from aliquot.live.invocations.platform import Platform
from aliquot.live.objects.registry import ObjectRegistry
from aliquot.live.store.records import (
    BLACKBOX,
    KERNEL,
    PYTHON,
    SEQUENCE,
    WORKFLOW,
    Action,
    Exec,
    FullName,
    Limits,
    Package,
    Pair,
)
from aliquot.workflow.language import Complaint

_ALL = "/api/v1/namespaces/{namespace}/actions"
_ONE = _ALL + "/{name}"
_IN_PACKAGE = _ALL + "/{package}/"
_PACKAGED = _ALL + "/{package}/{name}"
_INVOKE = (
    Query("blocking", bool, "wait until the run ends"),
    Query("result", bool, "respond with the result alone, not the record"),
    Query("timeout", Annotated[int, Meta(ge=1)], "maximum wait in milliseconds"),
    Query("session", str, "the session of this invocation; the header X-Aliquot-Session does the same"),
)
_INVOKED = {200: Any, 202: wire.ActivationId, 500: Any, 502: Any}
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")
_MAX_IMAGE_NAME_LENGTH = 1024


class ActionEndpoints:
    """Handles requests for actions. Invocations are handled by `InvokeHandler`."""

    def __init__(
        self,
        platform: Platform,
        catalogue: Catalogue,
        settings: GatewaySettings,
        schedules: ActionSchedules,
        trials: KernelTrials | None = None,
        objects: ObjectRegistry | None = None,
    ) -> None:
        """Kernel graphs are tried out if there are `trials`. Their constants are among the `objects`."""
        self._platform = platform
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._settings = settings
        self._schedules = schedules
        self._trials = trials
        self._objects = objects

    def endpoints(self) -> list[Endpoint]:
        code = Query("code", bool, "false omits the code")
        max_bytes = self._settings.entity_bytes
        items = list[wire.ActionItem] | wire.ActionCount
        item = {200: wire.ActionView}
        published = EndpointAccess.PUBLISHED
        many = [
            Endpoint("GET", _ALL, self.list, "List actions", {200: items}, query=PAGE),
            Endpoint("GET", _IN_PACKAGE, self.list_package, "List the actions in a package", {200: items}, published,
                     query=PAGE, statuses=(404, 409)),
        ]  # fmt: skip
        for path, readable in ((_ONE, EndpointAccess.NAMESPACE), (_PACKAGED, published)):
            many += [
                Endpoint("PUT", path, self.put, "Create or update an action", item, body=wire.ActionPut,
                         query=(OVERWRITE,), max_bytes=max_bytes, statuses=(404, 409, 413, 415)),
                Endpoint("POST", path, handled_elsewhere, "Invoke an action", _INVOKED, readable,
                         body=dict | None, query=_INVOKE, statuses=(404, 408, 409, 413, 415, 429),
                         also_takes=(PICKLE.decode(), SAFETENSORS.decode()), streams=True),
                Endpoint("GET", path, self.get, "Read an action", item, readable, query=(code,), statuses=(404, 409)),
                Endpoint("DELETE", path, self.delete, "Delete an action", item, statuses=(404, 409)),
            ]  # fmt: skip
        return many

    async def put(self, request: Request) -> Response:
        name = FullName(request.namespace, name_of(request))
        overwrite = flag(request.fields, "overwrite")
        put: wire.ActionPut = read_json(request.body or b"{}", wire.ActionPut)
        put = await with_layouts(put, request.namespace, self._objects)
        async with self._catalogue.writing(request.namespace):
            self._check_package(name)
            old = find_replaced(self._entities, Action, name.namespace, name.name, overwrite=overwrite)
            action = build_action(name, put, old, self._entities, self._settings, self._max_concurrent(request))
            warnings: list[Complaint] = []
            if action.exec.kind == WORKFLOW:
                warnings = await WorkflowCheck(self._platform, self._catalogue.resolve).check_action(action)
            if (why := self._platform.reason_not_deployable(action)) is not None:
                raise Refusal(400, why)
            self._schedules.check(action)
            if action.exec.kind == KERNEL and put.exec is not None:
                check_constants(action, self._objects)
                action = await try_out(action, old, self._trials)
            action = await self._catalogue.put(action)
            await self._schedules.apply(action)
        return json_response(action_view(action, warnings=warnings))

    async def get(self, request: Request) -> Response:
        code = flag(request.fields, "code", default=True)
        resolved = resolve_action(self._entities, request.namespace, FullName(request.named, name_of(request)))
        return json_response(action_view(resolved.action, code=code))

    async def delete(self, request: Request) -> Response:
        name = FullName(request.namespace, name_of(request))
        async with self._catalogue.writing(request.namespace):
            self._check_package(name)
            action = find(self._entities, Action, name.namespace, name.name)
            await self._schedules.remove(action)
            await self._catalogue.delete(action)
        return json_response(action_view(action))

    async def list(self, request: Request) -> Response:
        return list_response(request, "actions", self._entities.all(Action, request.namespace), action_item)

    async def list_package(self, request: Request) -> Response:
        """List the actions of a package. A binding has those of the package that it binds."""
        name = FullName(request.named, name_of(request))
        provider = readable_package(self._entities, request.namespace, name, f"{name.namespace}/{name.name}")[0]
        contents = self._entities.contents(provider.namespace, provider.name)
        return list_response(request, "actions", contents, action_item)

    def _max_concurrent(self, request: Request) -> int | None:
        assert request.principal is not None  # noqa: S101 - the endpoint requires a key
        return request.principal.limiter.limits.concurrent_invocations

    def _check_package(self, name: FullName) -> None:
        """Raise a refusal unless the action's package exists and is not a binding."""
        if name.package and find(self._entities, Package, name.namespace, name.package).binding is not None:
            raise Refusal(400, "Operation not permitted on package binding.")


def build_action(
    name: FullName,
    put: wire.ActionPut,
    old: Action | None,
    entities: Entities,
    settings: GatewaySettings,
    max_concurrent: int | None = None,
) -> Action:
    """Return the action after the PUT.

    Raises a `Refusal`, or `AccessDeniedError` for a component that the caller may not read. `max_concurrent` is the
    number of invocations that its namespace may have in flight.
    """
    if put.exec is not None:
        code = _exec(put.exec, name.namespace, settings)
        if code.kind == SEQUENCE:
            check_components(entities, name, code.components, settings.sequence_length)
    elif old is not None:
        code = old.exec
    else:
        raise Refusal(400, "exec undefined")
    action = Action(
        namespace=name.namespace,
        name=name.name,
        exec=code,
        limits=_limits(put.limits, old, settings, max_concurrent),
        parameters=_parameters(put, code, old, settings),
        **{**common_fields(put, old, settings), "annotations": _annotations(put, old, code.kind, settings)},
    )
    try:
        parse_needs(action)
        check_batch(action)
    except InputError as error:
        raise Refusal(400, str(error)) from error
    return action


def is_base64(code: str) -> bool:
    """Return whether the code is base64. The client's own `binary` field does not count."""
    code = code.strip()
    return len(code) % 4 == 0 and _BASE64.fullmatch(code) is not None


def _parameters(put: wire.ActionPut, code: Exec, old: Action | None, settings: GatewaySettings) -> tuple[Pair, ...]:
    """Return the action's parameters. A sequence's only parameter is the list of its components."""
    if code.kind == SEQUENCE:
        return (Pair("_actions", [str(component) for component in code.components]),)
    kept = old.parameters if old is not None and old.exec.kind != SEQUENCE else ()
    return updated_parameters(put.parameters, kept, settings)


def _exec(put: wire.ExecPut, caller: str, settings: GatewaySettings) -> Exec:
    kind = resolve_kind(put.kind, nodejs=settings.nodejs)
    if kind == SEQUENCE:
        return Exec(SEQUENCE, components=read_components(put.components, caller))
    image = _image(put.image, settings) if kind == BLACKBOX else None
    if put.code is None and image is None:
        raise malformed(f"'code' must be a string or attachment object defined in 'exec' for '{kind}' actions")
    code = put.code or ""
    size = len(code.encode())
    if size > settings.code_bytes:
        raise too_large("exec", size, settings.code_bytes)
    return Exec(kind, code, kind not in {WORKFLOW, KERNEL} and is_base64(code), put.main or None, image)


def _image(name: str | None, settings: GatewaySettings) -> str:
    """Return the image's name if it is mapped to a runtime. Images are never pulled."""
    if not name or len(name) > _MAX_IMAGE_NAME_LENGTH:
        raise malformed(f"'image' must be a string defined in 'exec' for '{BLACKBOX}' actions")
    if find_image(settings.images, name) is None:
        mapped = ", ".join(f"'{image.name}'" for image in settings.images) or "none"
        raise Refusal(
            400,
            f"The image '{name}' is not mapped to a runtime of this platform. Mapped are: {mapped}. "
            f"Its operator maps one with: aliquot up {OPTION} '{name}={PYTHON}'",
        )
    return name


def _annotations(put: wire.ActionPut, old: Action | None, kind: str, settings: GatewaySettings) -> tuple[Pair, ...]:
    deleted = frozenset(put.del_annotations or ())
    merged = {pair.key: pair for pair in (old.annotations if old else ()) if pair.key not in deleted}
    merged.update((pair.key, pair) for pair in annotation_pairs(put.annotations or []))
    if old is None:
        merged.setdefault("provide-api-key", Pair("provide-api-key", False))
    merged["exec"] = Pair("exec", kind)
    return check_size("annotations", tuple(merged.values()), settings)


def _limits(
    put: wire.LimitsPut | None, old: Action | None, settings: GatewaySettings, max_concurrent: int | None
) -> Limits:
    put = put or wire.LimitsPut()

    def pick(field: str, allowed: Range, what: str, unit: str = "") -> int:
        given: int | None = getattr(put, field)
        if given is None:
            return getattr(old.limits, field) if old else allowed.default
        if given > allowed.maximum:
            raise Refusal(400, f"{what} {given}{unit} exceeds allowed threshold of {allowed.maximum}{unit}")
        if given < allowed.minimum:
            raise Refusal(400, f"{what} {given}{unit} below allowed threshold of {allowed.minimum}{unit}")
        return given

    return Limits(
        pick("timeout", settings.timeout_ms, "duration", " milliseconds"),
        pick("memory", settings.memory_mb, "memory size", " MB"),
        pick("logs", settings.logs_mb, "log size", " MB"),
        pick("concurrency", settings.concurrency, "concurrency"),
        _instances(put.instances, old, max_concurrent),
    )


def _instances(given: int | None, old: Action | None, max_concurrent: int | None) -> int | UnsetType:
    if given is None:
        return old.limits.instances if old else UNSET
    if given < 1:
        raise Refusal(400, f"instances {given} below allowed threshold of 1")
    if max_concurrent is not None and given > max_concurrent:
        text = f"Max action instance concurrency must not exceed your namespace concurrency of {max_concurrent}."
        raise Refusal(400, text)
    return given


# --- views ---------------------------------------------------------------------------------------------------


def action_view(action: Action, *, code: bool = True, warnings: Sequence[Complaint] = ()) -> wire.ActionView:
    return wire.ActionView(
        **common_view_fields(action),
        exec=_exec_view(action.exec, code=code),
        parameters=pair_views(action.parameters),
        limits=_limits_view(action.limits),
        warnings=[str(warning) for warning in warnings] or UNSET,
    )


def _exec_view(stored: Exec, *, code: bool) -> wire.ExecView:
    if stored.kind == SEQUENCE:
        return wire.ExecView(stored.kind, components=[str(component) for component in stored.components])
    return wire.ExecView(
        stored.kind,
        stored.binary,
        stored.code if code and (stored.code or stored.image is None) else UNSET,
        UNSET if stored.main is None else stored.main,
        UNSET if stored.image is None else stored.image,
    )


def action_item(action: Action) -> wire.ActionItem:
    exec_ = wire.ExecItem(action.exec.binary)
    return wire.ActionItem(**common_view_fields(action), exec=exec_, limits=_limits_view(action.limits))


def _limits_view(limits: Limits) -> wire.LimitsView:
    return wire.LimitsView(limits.timeout, limits.memory, limits.logs, limits.concurrency, limits.instances)
