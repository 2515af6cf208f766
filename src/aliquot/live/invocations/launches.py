"""Launch and run requests: what a sandbox needs to start for a function, and to run one call of it."""

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from aliquot.core.places import Place, is_cpu, place_text
from aliquot.core.units import MIB
from aliquot.kernels.executor.compiled_code import CODE
from aliquot.live.catalogue.groups import FlowFunctions
from aliquot.live.catalogue.images import RuntimeImage, find_image
from aliquot.live.catalogue.kernel_graphs import KERNEL_MODULE, graph_needs
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call, ChainCall, NestedCall, SharedArguments, TaskVariables
from aliquot.live.invocations.errors import PayloadError
from aliquot.live.invocations.parameters import read_object
from aliquot.live.invocations.sandbox_assignments import SandboxAssignment
from aliquot.live.invocations.sequences.payloads import LARGE_PAYLOAD_BYTES, defaults_of
from aliquot.live.invocations.trace_context import trace_within
from aliquot.live.node.base import ChainStep, Launch, Member, RunRequest
from aliquot.live.objects.files import folder_name
from aliquot.live.objects.registry import ObjectRegistry
from aliquot.live.store.records import KERNEL, PYTHON, Action
from aliquot.runtime.mounts import DATASETS, VOLUMES

SecretLookup = Callable[[ResolvedAction], dict[str, str]]  # variables of the secrets that a function names

_NOT_SHARED = SharedArguments()


def launch(
    functions: FlowFunctions,
    first: ResolvedAction,
    place: Place,
    api_host: str,
    images: tuple[RuntimeImage, ...] = (),
    more: dict[str, str] | None = None,
    payload: bytes | memoryview = b"",
    secrets: SecretLookup | None = None,
) -> Launch:
    """Return the launch of a sandbox whose first call is of `first`, with this JSON payload.

    `more` is added to its environment, and so are the secrets of each function.
    """
    action = first.action
    needs = functions.needs()
    kind, requirements = _environment(functions, action, images)
    on_cpu = is_cpu(place)
    share = 0.0 if on_cpu else needs.gpu_share
    platform_env = {
        "__OW_API_HOST": api_host,
        "__OW_NAMESPACE": functions.tenant,
        "ALIQUOT_DEVICE": place_text(place),
        "ALIQUOT_SHARE": f"{share:g}",
        **({"ALIQUOT_DATASETS": DATASETS} if needs.datasets else {}),
        **({"ALIQUOT_VOLUMES": VOLUMES} if needs.volumes else {}),
    }
    one = member(first, payload, secrets)
    is_group = functions.is_group
    return Launch(
        tenant=functions.tenant,
        function=functions.flow,
        revision=action.revision,
        version=action.version,
        kind=kind,
        code="" if is_group else one.code,
        binary=not is_group and one.binary,
        main=one.name if is_group else (on_cpu and needs.cpu) or one.main,
        env={**platform_env, **(more or {})} if is_group else {**one.env, **platform_env, **(more or {})},
        timeout_ms=action.limits.timeout,
        memory_bytes=sum(resolved.action.limits.memory for resolved in functions.members) * MIB,
        logs_bytes=action.limits.logs * MIB,
        imports=needs.imports,
        requirements=requirements,
        place=place,
        share=share,
        device_bytes=0 if on_cpu else needs.memory_limit_bytes + needs.run_bytes,
        sdk=needs.sdk,
        datasets=needs.datasets,
        volumes=needs.volumes,
        members=tuple(one if each is first else member(each, secrets=secrets) for each in functions.members)
        if is_group
        else (),
        init_names=() if is_group else one.init_names,
        file="" if is_group else one.file,
        exit=not is_group and needs.exit,
        batch=needs.batch,
        module=KERNEL_MODULE if kind == KERNEL else "",
    )


class GraphFiles(NamedTuple):
    """The files of constants and programs of kernel graphs. Without `objects` there are none."""

    objects: ObjectRegistry | None

    def add(self, made: Launch, action: Action) -> Launch:
        """Return the launch of a graph with the files that its own namespace stores, and with its compiled code."""
        made = self._with(made, action, graph_needs(action).files)
        if self.objects is None:
            return made
        code = self.objects.compiled.path(folder_name(action.namespace), action.exec.code)
        return replace(made, constants=(*made.constants, (CODE, str(code))))

    def add_programs(self, made: Launch, action: Action) -> Launch:
        """Return the launch of a trial, which has zeros for constants."""
        return self._with(made, action, graph_needs(action).programs)

    def _with(self, made: Launch, action: Action, digests: Iterable[str]) -> Launch:
        if self.objects is None or not digests:
            return made
        path = self.objects.files.path
        found = tuple((digest, str(path(action.namespace, digest))) for digest in digests)
        return replace(made, constants=found)


def requirements_of(functions: FlowFunctions, images: tuple[RuntimeImage, ...] = ()) -> tuple[str, ...]:
    """Return the packages that must be installed before a sandbox of the flow can start."""
    kind, requirements = _environment(functions, functions.members[0].action, images)
    return requirements if kind == PYTHON else ()


def _environment(
    functions: FlowFunctions, action: Action, images: tuple[RuntimeImage, ...]
) -> tuple[str, tuple[str, ...]]:
    """Return the kind of the runtime and the packages in its environment."""
    requirements = functions.needs().requirements
    if action.exec.image is not None and (image := find_image(images, action.exec.image)) is not None:
        return image.kind, (*image.requirements, *requirements)
    return action.exec.kind, requirements


def member(resolved: ResolvedAction, payload: bytes | memoryview = b"", secrets: SecretLookup | None = None) -> Member:
    """Return a function as a member of its group's sandbox. The payload's values of `init` parameters win."""
    action = resolved.action
    needs = parse_needs(action)
    env = {pair.key: _text(pair.value) for pair in action.parameters if pair.init}
    names = tuple(env)
    env |= _given_values(names, payload)
    env |= dict(needs.env)
    if secrets is not None and needs.secrets:
        env |= secrets(resolved)
    env |= {"__OW_ACTION_NAME": str(action.full_name), "__OW_ACTION_VERSION": action.version}
    code = action.exec
    return Member(resolved.function, code.code, code.binary, code.main or "main", env, needs.sdk, names, needs.file)


def _given_values(names: tuple[str, ...], payload: bytes | memoryview) -> dict[str, str]:
    """Return the values that a payload has for these names. A large payload is not decoded."""
    if not names or not payload or len(payload) > LARGE_PAYLOAD_BYTES:
        return {}
    try:
        given = read_object(bytes(payload))
    except PayloadError:  # an array, which the component before returned
        return {}
    return {name: _text(msgspec.json.decode(given[name])) for name in names if name in given}


def activation_env(call: Call, key: str, now_ms: int) -> dict[str, str]:
    """Return the environment variables that describe an activation to its code."""
    env = {
        "__OW_ACTIVATION_ID": call.id,
        "__OW_TRANSACTION_ID": call.transaction,
        "__OW_DEADLINE": str(now_ms + call.action.limits.timeout),
    }
    if key:
        env["__OW_API_KEY"] = key
    if (
        call.followers and call.takes_parts
    ):  # a variable stays in its sandbox until it is set again, so it names its activation
        env["ALIQUOT_STREAM"] = call.id
    if call.trace is not None:
        env |= _trace_variables(call)
    if call.task is not None:
        env["ALIQUOT_TASK"] = _describe_task(call.id, call.task)
    return env


def _trace_variables(call: Call) -> dict[str, str]:
    """Return the variables in which OpenTelemetry passes a trace between processes."""
    trace = trace_within(call)
    variables = {"TRACEPARENT": trace.header}
    if trace.state:
        variables["TRACESTATE"] = trace.state
    return variables


def _describe_task(activation: str, task: TaskVariables) -> str:
    """Return a task's place in its workflow as JSON.

    A variable stays in its sandbox until it is set again, so it names its activation.
    """
    found: dict[str, object] = {"activation": activation, "execution": task.execution, "key": task.key}
    if task.token is not None:
        found["token"] = task.token
    if task.until_s is not None:
        found["deadline"] = round(task.until_s * 1000)
    return msgspec.json.encode(found).decode()


def run_request(call: Call, assignment: SandboxAssignment, now_ms: int) -> RunRequest:
    """Return the request to run a call. The activation of a chain is that of its first step."""
    one = call.run.nested[0] if call.run.nested else call
    limits = one.action.limits
    env = activation_env(one, assignment.key_for(one.resolved), now_ms)
    steps: tuple[ChainStep, ...] = ()
    if assignment.alone is None:
        following = call.steps if isinstance(call, ChainCall) else ()
        first = assignment.resolved_for(one.function)
        steps = (
            ChainStep(first.function, defaults_of(first.action)),
            *(_chain_step(step, assignment, now_ms) for step in following),
        )
    shared = call.shared or _NOT_SHARED
    return RunRequest(
        one.id, call.payload, call.pickled, env, limits.timeout, limits.logs * MIB, one, steps, shared.buffer,
        share=shared.reply_buffers is not None and not call.durable,
        handed=shared.handed,
        hand_on=shared.hands_on,
        defaults=defaults_of(one.action) if shared.handed else {},
        objects=shared.objects,
        kernel=None if call.objects is None else call.objects.open(),
    )  # fmt: skip


def _chain_step(step: NestedCall, assignment: SandboxAssignment, now_ms: int) -> ChainStep:
    """Return a step that follows another in its sandbox."""
    resolved = assignment.resolved_for(step.function)
    step.action = resolved.action
    env = activation_env(step, assignment.key_for(resolved), now_ms)
    return ChainStep(resolved.function, defaults_of(resolved.action), step.arguments, env)


def _text(value: object) -> str:
    """Return a parameter as text. Values that are not text are written as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
