"""A running composition, and the calls of its components."""

from collections.abc import Callable

from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call, ChainCall, NestedCall, SharedArguments
from aliquot.live.invocations.limited_executions import LimitedExecution
from aliquot.live.invocations.sequences.machine import CompositionMachine, RunAction
from aliquot.live.invocations.trace_context import trace_within
from aliquot.live.store.records import SEQUENCE

_CAUSED_BY = note("causedBy", SEQUENCE)


class CompositionRun:
    """A running composition: its call, the state machine that decides what runs next, and the current component."""

    __slots__ = ("begun", "call", "component", "limited", "machine", "runs")
    closed = False

    def __init__(self, call: Call, machine: CompositionMachine, limited: LimitedExecution | None) -> None:
        self.call = call
        self.machine = machine
        self.component: Call | None = None
        self.begun = False  # whether a component has run
        self.limited = limited  # if it has a deadline or a cost limit
        self.runs = 0  # of components, or of several in one sandbox

    def printed(self, line: str) -> None:
        """Pass a component's log line to the followers of the composition."""
        self.call.printed(line)

    def ended(self, call: Call) -> None:
        """Do nothing, since `done` handles the end of a component."""

    def component_call(
        self,
        command: RunAction,
        payload: bytes | memoryview,
        shared: SharedArguments | None,
        returned: Callable[[Call], None],
        chain_ended: Callable[[Call], None],
        chain_id: Callable[[], str],
    ) -> Call:
        """Make the call that runs a component, or several in one sandbox. `returned` is called for each of them."""
        self.runs += 1
        if command.chained:
            made: Call = self._chain(command, payload, shared, returned, chain_ended, chain_id())
        else:
            made = self._single(command, payload, shared, returned)
        if self.limited is not None:
            made.stage = self.limited.place(str(self.runs))
        return made

    def _single(
        self,
        command: RunAction,
        payload: bytes | memoryview,
        shared: SharedArguments | None,
        returned: Callable[[Call], None],
    ) -> Call:
        call = self.call
        return Call(
            command.id,
            call.namespace,
            command.resolved,
            payload,
            transaction=call.transaction,
            cause=command.cause,
            notes=_CAUSED_BY,
            session=call.session,
            shared=shared,
            followers=(self,),
            done=returned,
            trace=trace_within(call, command.cause),
        )

    def _chain(
        self,
        command: RunAction,
        payload: bytes | memoryview,
        shared: SharedArguments | None,
        returned: Callable[[Call], None],
        chain_ended: Callable[[Call], None],
        chain_id: str,
    ) -> ChainCall:
        """Make the call that runs several components in one sandbox, with a nested call for each."""
        call = self.call
        chain = ChainCall(
            chain_id,
            call.namespace,
            command.resolved,
            payload,
            session=call.session,
            shared=shared,
            done=chain_ended,
        )
        trace = trace_within(call, command.cause)
        for step_id, resolved in ((command.id, command.resolved), *command.chained):
            step = NestedCall(
                chain,
                step_id,
                resolved,
                command.payload,
                transaction=call.transaction,
                cause=command.cause,
                notes=_CAUSED_BY,
                followers=(self,),
                done=returned,
                trace=trace,
            )
            chain.steps.append(step)
        return chain
