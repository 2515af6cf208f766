"""What is told of an action: to the core that schedules it, and to the sandbox that is to run it."""

import json

from msgspec import UNSET
from msgspec.structs import replace

from aliquot.core.model import CPU, FunctionSpec, Times
from aliquot.live.call import Call
from aliquot.live.images import Image, find_image
from aliquot.live.needs import needs_of
from aliquot.live.node.base import Launch, RunRequest
from aliquot.live.records import NODEJS
from aliquot.live.resolving import Reached
from aliquot.runtime.mounts import DATASETS

MIB = 2**20
# What a start takes, as the policies believe it: a fork from a zygote, or a fresh interpreter.
COLD_S = {NODEJS: 0.1}
FORK_S = 0.02


def function_spec(reached: Reached) -> FunctionSpec:
    action = reached.action
    spec = needs_of(action).function(reached.function, host_bytes=action.limits.memory * MIB)
    bound = action.limits.instances
    return replace(
        spec, instances=None if bound is UNSET else bound, times=Times(cold_s=COLD_S.get(action.exec.kind, FORK_S))
    )


def launch(
    reached: Reached, device: str, api_host: str, images: tuple[Image, ...] = (), more: dict[str, str] | None = None
) -> Launch:
    """`more`: of the environment, what this one sandbox is told."""
    action = reached.action
    needs = needs_of(action)
    kind, requirements = action.exec.kind, needs.requirements
    if action.exec.image is not None and (image := find_image(images, action.exec.image)) is not None:
        kind, requirements = image.kind, (*image.requirements, *requirements)
    env = {pair.key: _text(pair.value) for pair in action.parameters if pair.init}
    env |= {
        "__OW_API_HOST": api_host,
        "__OW_NAMESPACE": reached.tenant,
        "__OW_ACTION_NAME": str(action.full_name),
        "__OW_ACTION_VERSION": action.version,
        "ALIQUOT_DEVICE": device,
        "ALIQUOT_SHARE": f"{needs.gpu_share:g}",
        **({"ALIQUOT_DATASETS": DATASETS} if needs.datasets else {}),
        **(more or {}),
    }
    return Launch(
        tenant=reached.tenant,
        function=reached.function,
        revision=action.revision,
        version=action.version,
        kind=kind,
        code=action.exec.code,
        binary=action.exec.binary,
        main=action.exec.main or "main",
        env=env,
        timeout_ms=action.limits.timeout,
        memory_bytes=action.limits.memory * MIB,
        logs_bytes=action.limits.logs * MIB,
        imports=needs.imports,
        requirements=requirements,
        device=device,
        share=needs.gpu_share,
        device_bytes=0 if device == CPU else needs.memory_limit_bytes,
        sdk=needs.sdk,
        datasets=needs.datasets,
    )


def activation_env(call: Call, key: str, now_ms: int) -> dict[str, str]:
    """What code is told of the activation it runs for, or for which its sandbox starts."""
    env = {
        "__OW_ACTIVATION_ID": call.id,
        "__OW_TRANSACTION_ID": call.transaction,
        "__OW_DEADLINE": str(now_ms + call.action.limits.timeout),
    }
    if key:
        env["__OW_API_KEY"] = key
    return env


def run_request(call: Call, key: str, now_ms: int) -> RunRequest:
    limits = call.action.limits
    env = activation_env(call, key, now_ms)
    return RunRequest(call.id, call.payload, call.pickled, env, limits.timeout, limits.logs * MIB, call)


def _text(value: object) -> str:
    """Parameters for the environment are text; what is not is written as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
