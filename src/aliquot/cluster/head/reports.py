"""Handle what agents report: pass it on to the service, as if the node were the head's own."""

from collections.abc import Callable
from typing import Any

from aliquot.cluster import messages
from aliquot.cluster.head.remote_node import RemoteNode, RemoteSandbox
from aliquot.cluster.messages import (
    CodeWanted,
    DeviceGone,
    Ended,
    Finished,
    Loaded,
    Part,
    Printed,
    SandboxGone,
    Started,
    StartRefused,
    Usage,
)
from aliquot.cluster.translation import TOO_LARGE, outcome
from aliquot.live.invocations.activations import error
from aliquot.live.node.base import NodeListener, Outcome, Status
from aliquot.live.node.shared_buffers import NodeBuffers, SharedBufferError


class ReportHandlers:
    """One method for each kind of report. Those about sandboxes that were stopped meanwhile are dropped."""

    def __init__(
        self,
        listener: NodeListener,
        buffers: NodeBuffers,
        nodes: dict[int, RemoteNode],
        leaving: Callable[[RemoteNode, float], None],
        ended: Callable[[RemoteNode], None],
    ) -> None:
        """`nodes` is by sandbox. `leaving` is called with a node that ends, `ended` when a sandbox has gone."""
        self._listener = listener
        self._buffers = buffers
        self._nodes = nodes
        self._leave = leaving
        self._ended = ended
        self.table: dict[type, Callable[[RemoteNode, Any], None]] = {
            Started: self._started,
            Finished: self._finished,
            SandboxGone: self._gone,
            StartRefused: self._refused,
            Loaded: self._loaded,
            DeviceGone: self._device_gone,
            Printed: self._printed,
            CodeWanted: lambda node, report: node.send_code(report.sandbox, report.digest),
            Part: lambda node, report: node.part(report.sandbox, report.data),
            Usage: self._usage,
            messages.Leaving: self._leaving,
        }

    def _started(self, node: RemoteNode, report: Started) -> None:
        if (sandbox := node.sandboxes.get(report.sandbox)) is not None:
            sandbox.launch = None
            self._listener.sandbox_started(report.sandbox, report.init_s, report.logs)

    def _finished(self, node: RemoteNode, report: Finished) -> None:
        if (sandbox := node.sandboxes.get(report.sandbox)) is not None:
            self._listener.run_finished(report.sandbox, self._outcome(sandbox, report.ended))

    def too_large(self, node: RemoteNode, number: int) -> None:
        """End a run whose arguments are too large to be sent."""
        if number in node.sandboxes:
            text = f"The arguments have {TOO_LARGE}. Hand them over as files of a dataset or as objects."
            self._listener.run_finished(number, Outcome(Status.APPLICATION_ERROR, error(text), 0.0))

    def _gone(self, node: RemoteNode, report: SandboxGone) -> None:
        if (sandbox := self._drop(node, report.sandbox)) is not None:
            self._listener.sandbox_lost(report.sandbox, self._outcome(sandbox, report.ended))
            self._ended(node)

    def _refused(self, node: RemoteNode, report: StartRefused) -> None:
        if self._drop(node, report.sandbox) is not None:
            self._listener.sandbox_refused(report.sandbox)
            self._ended(node)

    def _loaded(self, node: RemoteNode, report: Loaded) -> None:
        if report.sandbox in node.sandboxes:
            self._listener.memory_loaded(report.sandbox)

    def _device_gone(self, node: RemoteNode, report: DeviceGone) -> None:
        if (device := node.device(report.device)) is not None:
            node.devices = tuple(each for each in node.devices if each is not device)
            self._listener.device_lost(device.name, report.why)

    def _printed(self, node: RemoteNode, report: Printed) -> None:
        if (sandbox := node.sandboxes.get(report.sandbox)) is not None:
            sandbox.printed(report.lines)

    def _usage(self, node: RemoteNode, report: Usage) -> None:
        own = node.sandboxes
        node.usage = [one for one in report.sandboxes if one.sandbox in own]
        node.device_usage = [one for one in report.devices if one.sandbox in own]

    def _leaving(self, node: RemoteNode, report: messages.Leaving) -> None:
        node.leaving = True
        self._leave(node, report.grace_s)

    def _drop(self, node: RemoteNode, number: int) -> RemoteSandbox | None:
        self._nodes.pop(number, None)
        return node.sandboxes.pop(number, None)

    def _outcome(self, sandbox: RemoteSandbox, ended: Ended) -> Outcome:
        """Return the outcome of a run, and pass on the lines that its listener has not had yet."""
        sandbox.printed(ended.logs[len(sandbox.lines) :])
        sandbox.begin_run(None)
        try:
            return outcome(ended, lambda content: self._buffers.filled(sandbox.tenant, content))
        except SharedBufferError as why:
            text = f"The result could not be received from its node: {why}."
            return Outcome(Status.DEVELOPER_ERROR, error(text), ended.run_s, ended.logs)
