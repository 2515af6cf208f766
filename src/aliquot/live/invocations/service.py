"""The service: takes calls from the gateway and passes them to the scheduler. It decides nothing itself.

The engine lets the scheduler take its steps. The performer carries the commands out on the node and reports back.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog
from msgspec import to_builtins

from aliquot.config import PolicySettings
from aliquot.core.commands import Command, Start
from aliquot.core.events import (
    DeviceAdded,
    HostMemorySet,
    InvocationCancelled,
    SessionEnded,
    TenantWeightSet,
)
from aliquot.core.model import CPU
from aliquot.core.places import Place
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.images import RuntimeImage
from aliquot.live.catalogue.keys import EphemeralKeys
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.catalogue.secret_cipher import SecretCipher
from aliquot.live.catalogue.secrets import SecretRegistry
from aliquot.live.catalogue.volume_needs import reason_no_volumes
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.forecasting.host import make_forecaster
from aliquot.live.invocations.ahead_of_demand import AheadOfDemand
from aliquot.live.invocations.arrivals import arrival_of
from aliquot.live.invocations.call import Call, Follower
from aliquot.live.invocations.call_finisher import CallFinisher
from aliquot.live.invocations.call_registry import STOPPING, CallRegistry
from aliquot.live.invocations.capacity import Capacity
from aliquot.live.invocations.deployments import Deployments
from aliquot.live.invocations.engine import Engine
from aliquot.live.invocations.environment_waits import EnvironmentWaits
from aliquot.live.invocations.errors import NotPromisedError, OverloadedError
from aliquot.live.invocations.flows import Flows
from aliquot.live.invocations.kept_estimates import KeptEstimates
from aliquot.live.invocations.kernel_objects import KernelObjects
from aliquot.live.invocations.kernel_trials import KernelTrials
from aliquot.live.invocations.launches import launch
from aliquot.live.invocations.limited_executions import LimitedExecutions
from aliquot.live.invocations.performer import CommandPerformer
from aliquot.live.invocations.platform_counters import PlatformCounters
from aliquot.live.invocations.pure_results import PureResults
from aliquot.live.invocations.sandbox_assignments import SandboxAssignments
from aliquot.live.invocations.status import describe
from aliquot.live.node.base import Node
from aliquot.live.objects.registry import ObjectRegistry
from aliquot.live.profile.log import ProfileLog
from aliquot.live.profile.profiler import Profiler
from aliquot.live.profile.records import ProfileRow
from aliquot.live.store.base import Store
from aliquot.live.store.records import KERNEL, Action, Activation, Namespace
from aliquot.live.usage.figures import with_usage
from aliquot.live.usage.file import UsageFile
from aliquot.live.usage.sampler import UsageSampler
from aliquot.live.usage.tenant_shares import TenantShareSampler
from aliquot.result_cache import ResultCache

log = structlog.get_logger("aliquot.service")

CANCELLED = "cancelled"
_ON_CPU = (CPU,)


class Service:
    """Runs calls of single actions. The gateway uses it through the `Composer`, which has the same interface."""

    def __init__(
        self,
        settings: PolicySettings,
        node: Node,
        store: Store,
        *,
        host_memory_bytes: int,
        max_sandbox_bytes: int | None = None,
        fabric: Fabric | None = None,
        keys: EphemeralKeys | None = None,
        api_host: str = "",
        images: tuple[RuntimeImage, ...] = (),
        open_usage_file: Callable[[], UsageFile] | None = None,
        profiles: ProfileLog | None = None,
        data: Path | None = None,
        secrets: SecretRegistry | None = None,
        result_cache_bytes: int = 0,
        objects: ObjectRegistry | None = None,
    ) -> None:
        """Build the service. Functions call back to `api_host` with keys from `keys`.

        `images` maps the images that blackbox actions name to runtimes. `max_sandbox_bytes` is the largest memory limit
        of a sandbox, by default `host_memory_bytes`.
        """
        self._engine = Engine(settings, store, self._performer_of)
        self.scheduler = self._engine.scheduler
        self.counters = PlatformCounters(self.scheduler.pool, self._engine.measure_next_step)
        self._node = node
        self._store = store
        self._host_memory_bytes = host_memory_bytes
        self._max_sandbox_bytes = host_memory_bytes if max_sandbox_bytes is None else max_sandbox_bytes
        self._api_host = api_host
        self._images = images
        self.registry = CallRegistry(store, self._engine.now, lambda call: self.results.ended(call))  # noqa: PLW0108 - made below
        self.calls = self.registry.calls
        self.sessions = self.registry.sessions
        self.usage = UsageSampler(node, self.scheduler, self._engine.post, open_usage_file)
        self.profiler = Profiler(self.scheduler, node.pid_of, self.usage.sandboxes.get, self._profiled)
        self._profiles = profiles
        step_s = self.scheduler.foresight.policy.step_s
        self._shares = TenantShareSampler(self.scheduler, lambda: bool(self.calls))
        self.fabric = fabric or Fabric(store)
        self.forecaster = make_forecaster(step_s, data, self._engine.post, self.fabric.learning)
        self.secrets = secrets or SecretRegistry(store, SecretCipher(None))
        policies = "+".join(self.scheduler.policy_names)
        self.finisher = CallFinisher(policies, self.registry, self.fabric.readers, self._engine.now)
        self.objects, self.kernel_objects = objects, KernelObjects(objects)
        self.flows = Flows()
        self.executions = LimitedExecutions(self._engine.post, self._engine.stepped, self._engine.now, self.flows.flow)
        self.ahead = AheadOfDemand(self.scheduler, self.flows, self._engine.post, self._engine.now)
        self.capacity = Capacity(self.flows, lambda: node.devices, self._max_sandbox_bytes)
        self._performer = CommandPerformer(
            node,
            self.fabric,
            self.registry,
            SandboxAssignments(keys or EphemeralKeys(), self.profiler.close_files),
            self.finisher,
            self.flows,
            wake=self._wake,
            post=self._engine.post,
            arrive=self._post_arrival,
            now=self._engine.now,
            api_host=api_host,
            images=images,
            secrets=self.secrets,
            objects=self.kernel_objects,
            executions=self.executions,
        )
        self.counters.count(self._performer.performers)
        self.nested_calls, self.node_events = self._performer.nested_calls, self._performer.node_events
        self.nested_calls.on_called(self.profiler.note)
        self.trials = KernelTrials(node, self.kernel_objects.graphs)
        weights = self.scheduler.registry.tenant_weights
        self.results = PureResults(
            ResultCache(result_cache_bytes, lambda tenant: weights.get(tenant, 1)),
            run=self._post_arrival,
            end=self._performer.end,
            now=self._engine.now,
        )
        self.estimates = KeptEstimates(store, self.scheduler.registry.flows, self.flows.revision, self._engine.post)
        self._environments = EnvironmentWaits(node, self._post_arrival, self._performer.fail_waiting)
        self._deployments = Deployments(
            *(self.flows, self.calls, self._environments, images),
            post=self._engine.post,
            cancel=self._cancel,
            forget=self.finisher.forget,
        )

    # --- start and stop -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the secrets, start the fabric and the node, and report the devices to the scheduler."""
        await self.secrets.load()
        if self.objects is not None:
            await self.objects.load()
        await self.fabric.start(self._performer)
        await self._node.start(self.trials.listening(self._performer))
        self._engine.post(HostMemorySet(self._host_memory_bytes))
        for device in self._node.devices:
            self._engine.post(DeviceAdded(device))

    def _performer_of(self, kind: type[Command]) -> Callable[..., None]:
        """Return the method of the performer, which is built after the engine, for commands of this kind."""
        return self._performer.performers[kind]

    async def sweep_objects(self, catalogue: Catalogue) -> None:
        """Remove blobs that no object, no kernel graph and no call names, from time to time."""
        await self.kernel_objects.sweep_repeatedly(catalogue, self.calls)

    def running_calls(self) -> int:
        return sum(bool(call.run.begun_s) for call in self.calls.values())

    async def drain(self, grace_s: float) -> None:
        """Refuse new calls, and let running and awaited calls end. Accepted calls that wait stay in the store."""
        self.registry.stopping = True
        waiting = [call for call in self.calls.values() if call.queue_entry and not call.run.begun_s]
        await self.registry.forget_starts([call for call in waiting if call.run.start is not None])
        for call in waiting:
            if not call.run.begun_s:
                call.parked = True
                self._cancel(call, STOPPING)
        await self.registry.wait_for_all(grace_s)

    async def stop(self) -> None:
        """End every sandbox. The store stays open for its owner to close."""
        self.registry.stopping = True
        await self.estimates.stop()
        self._engine.stop()
        self.counters.monitor.stop()
        self.usage.stop()
        self.profiler.stop()
        if self.forecaster is not None:
            await self.forecaster.stop()
        if self._profiles is not None:
            self._profiles.close()
        self._shares.stop()
        await self._node.stop()
        await self.fabric.stop()
        await self.registry.stop()

    # --- Platform: requests of the gateway --------------------------------------------------------------

    def submit(self, call: Call) -> None:
        self.registry.check_open(call.namespace.owner)
        self.enqueue(call)

    async def accept(self, call: Call) -> None:
        self.registry.check_open(call.namespace.owner)
        self.kernel_objects.take(call)
        if call.objective is not None:
            await self._accept_if_promised(call)
            return
        call.queue_entry = call.id
        await self.registry.keep(call)
        call.leave_payload_on_disk()
        self.enqueue(call)

    async def _accept_if_promised(self, call: Call) -> None:
        """Let the scheduler decide about a call with an objective before it goes to disk."""
        done, call.done = call.done, None
        call.durable = False
        self.enqueue(call)
        await self._engine.stepped()
        if call.objective is not None and call.objective.refusal is not None:
            raise NotPromisedError(call.reason, call.objective.refusal)
        try:
            if not call.ended:
                await self.detach(call)
        except OverloadedError:
            self._cancel(call, CANCELLED)
            raise
        if call.id in self.calls:
            call.done = done
        elif done is not None:  # it has ended meanwhile, and its caller is acknowledged first
            asyncio.get_running_loop().call_soon(done, call)

    async def accept_all(self, calls: Sequence[Call], record: Activation, event: bytes = b"") -> None:
        await self.registry.keep_all(calls, record, event)
        for call in calls:
            call.leave_payload_on_disk()
            self.enqueue(call)

    async def detach(self, call: Call) -> None:
        if call.activation is None and not call.durable:
            call.queue_entry = call.id
            await self.registry.keep(call)
            call.leave_payload_on_disk()

    def cancel(self, owner: str, activation_id: str) -> bool:
        call = self.calls.get(activation_id)
        if call is None or call.namespace.owner != owner:
            return False
        outermost = call.outermost
        outermost.run.may_retry = False  # a cancelled call is not tried again
        self._cancel(outermost, CANCELLED)
        return True

    def _cancel(self, call: Call, reason: str) -> None:
        """Cancel a call, whether the scheduler knows it or it waits for its environment."""
        if self.results.withdraw(call):
            call.result_key = None
            self._performer.fail_waiting(call, reason, None)
        elif not self._environments.withdraw(call, reason):
            self._engine.post(InvocationCancelled(call.id, reason))

    def follow(self, owner: str, activation_id: str, follower: Follower) -> bool:
        if not self.is_open(owner, activation_id):
            return False
        call = self.calls[activation_id]
        for line in self._performer.output.of_call(call):
            follower.printed(line)
        call.follow(follower)
        return True

    def is_open(self, owner: str, activation_id: str) -> bool:
        call = self.calls.get(activation_id)
        return call is not None and call.namespace.owner == owner

    async def activation(self, owner: str, activation_id: str) -> Activation | None:
        return await self._store.activation(owner, activation_id)

    def deploy(self, resolved: ResolvedAction) -> None:
        before = self.flows.revision(resolved.tenant, resolved.function)
        self._deployments.deploy(resolved)
        self.results.deployed(resolved, before)

    def prepare(self, resolved: ResolvedAction) -> None:
        functions = self.flows[resolved.tenant, self.flows.flow(resolved.tenant, resolved.function)]
        self._node.prepare(launch(functions, resolved, _ON_CPU, self._api_host, self._images))

    def remove(self, tenant: str, function: str) -> None:
        self.results.removed(tenant, function, self.flows.revision(tenant, function))
        self._deployments.remove(tenant, function)

    def reason_not_deployable(self, action: Action) -> str | None:
        """Return why the action cannot run: what it may not use, such as a dataset, or needs that fit no device."""
        if names := parse_needs(action).datasets:
            reason = self.fabric.datasets.reason_unavailable(action.namespace, names)
            if reason is not None:
                return reason
        if (reason := self.secrets.reason_unavailable(action, action.namespace)) is not None:
            return reason
        if (reason := reason_no_volumes(self.fabric.volumes, action, action.namespace)) is not None:
            return reason
        resolved = ResolvedAction.own(action)
        return self.flows.reason_not_deployable(resolved, self._node.devices, self._max_sandbox_bytes)

    def set_weight(self, namespace: Namespace) -> None:
        self._engine.post(TenantWeightSet(namespace.name, namespace.weight))
        self._node.set_weight(namespace.name, namespace.weight)

    def status(self, *, with_processes: bool = True) -> dict[str, Any]:
        usage = self._node.usage() if with_processes else ()
        parts = (self.scheduler, usage, self._node.build_status(), self._engine.now())
        found = describe(*parts, calls=len(self.calls), stopping=self.registry.stopping)
        found |= {"tenants": self._shares.rows(), "profiler": self.profiler.status()}
        found["executors"] = self._node.executor_figures()
        if self.ahead.is_on:
            found["capacity"], found["moves"] = to_builtins(self.ahead.capacity()), self.ahead.moves()
        if self.forecaster is not None:
            found["forecasts"] = self.forecaster.status()
        self.usage.refresh()
        if self.results.ttls:
            found["results"] = self.results.status()
        if self.executions.counts:
            found["promises"] = dict(self.executions.counts)
        if self.fabric.figures:
            found["fabric"] = self.fabric.figures
        return with_usage(found, self.usage)

    def _wake(self, place: Place, start: Start) -> None:
        """Begin to measure, because something is about to run. It is counted."""
        self.counters.dispatches[place, start] += 1
        self.profiler.wake()
        if place != _ON_CPU:
            self.usage.wake(place)

    def _profiled(self, rows: Sequence[ProfileRow]) -> None:
        if self._profiles is not None:
            self._profiles.add(rows)
        if self.forecaster is not None:
            self.forecaster.seen(rows)

    def enqueue(self, call: Call) -> None:
        """Pass the call to the scheduler, unless the result of an equal one is known or will be."""
        self.registry.add(call)
        if call.resolved.action.exec.kind == KERNEL and (problem := self.kernel_objects.problem(call)) is not None:
            self._performer.fail_waiting(call, "", problem)
        elif not (self.results.ttls and self.results.take(call)):
            self._post_arrival(call)
        elif call.stage is not None:  # it needs no device
            self.executions.skip(call.stage.execution, call.stage.stage)

    def _post_arrival(self, call: Call) -> None:
        """Report the arrival, once the function's environment is built.

        An ended session is left out, because the scheduler would take it for a new one.
        """
        tenant, session = call.namespace.name, call.session or None
        flow = self.flows.flow(tenant, call.function)
        if self._environments.hold(call, tenant, flow):
            return
        if session is not None and self.sessions.find(tenant, session) is None:
            session = None
        if session is not None:
            self.ahead.session_called(tenant, session, call.function)
        if call.stage is not None:
            self.executions.called(call.stage)
        self._engine.post(arrival_of(call, flow, session, self._engine.now()))

    def begin_session(self, namespace: str, session_id: str) -> None:
        self.fabric.session_began(namespace, session_id)
        self.ahead.session_began(namespace, session_id)

    def end_session(self, namespace: str, session_id: str) -> None:
        self._engine.post(SessionEnded(namespace, session_id))
        self.fabric.session_ended(namespace, session_id)
