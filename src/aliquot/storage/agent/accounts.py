"""What each run had of the fabric, and what was brought for nobody. No I/O; all calls come from one thread."""

from collections.abc import Callable, Iterable

from aliquot.core.prefetching.records import AudienceKey, audience_of, function_of
from aliquot.storage.agent.brought import UnopenedPrefetches
from aliquot.storage.messages import BeginRun, RunSettled
from aliquot.storage.records import FileKey, Found
from aliquot.storage.view.events import FileOpened, PieceWaited

_MAX_EARLY_OPENS = 10_000  # opens of one sandbox that belong to no run yet
_MAX_REASONS = 10_000  # that are remembered
_MAX_ENDED_SESSIONS = 10_000  # sessions that have ended, and of which something may still be told
_MAX_REASONS_IN_RECORD = 16  # in a record
UNKNOWN_RUN = "the storage agent knows nothing of it"


class RunAccount:
    """An invocation from its beginning to its record."""

    __slots__ = ("audience", "begun", "data_s", "error", "opened", "prefetched", "reasons")

    def __init__(self, begun: BeginRun) -> None:
        self.begun = begun
        self.audience: AudienceKey = (begun.tenant, audience_of(begun.session, begun.function))
        self.data_s = 0.0
        self.opened: dict[Found, int] = {}
        self.prefetched: dict[FileKey, int] = {}
        self.error = ""
        self.reasons: list[str] = []


class RunAccounts:
    """`accessed` is told of every open once it is known whose it is."""

    def __init__(self, accessed: Callable[[RunAccount, FileOpened], None]) -> None:
        self._accessed = accessed
        self._by_sandbox: dict[int, list[RunAccount]] = {}  # the innermost last: functions of a group call each other
        self._by_invocation: dict[str, RunAccount] = {}
        self._early: dict[int, list[FileOpened]] = {}
        self._early_s: dict[int, float] = {}  # waits for parts, likewise
        self._brought = UnopenedPrefetches()
        self._cancelled: dict[AudienceKey, int] = {}  # bytes that no record has told of yet
        self._overtook: dict[FileKey, float] = {}  # opened while a prefetch brought them: how long that took
        self._reasons: dict[FileKey, str] = {}  # the latest last
        self._over: dict[AudienceKey, None] = {}  # the latest last
        self.opens = dict.fromkeys(Found, 0)
        self.used_bytes = 0  # that were predicted, and were opened
        self.wasted_bytes = 0
        self.waited_s = 0.0
        self.hidden_s = 0.0  # of transfers that nobody had to wait for

    # --- runs ---------------------------------------------------------------------------------------------

    def begin(self, begun: BeginRun) -> None:
        run = RunAccount(begun)
        self.returned(run.audience)
        self._by_invocation[begun.invocation] = run
        self._by_sandbox.setdefault(begun.sandbox, []).append(run)
        run.data_s += self._early_s.pop(begun.sandbox, 0.0)
        for opened in self._early.pop(begun.sandbox, ()):
            self._count(run, opened)

    def opened(self, opened: FileOpened) -> None:
        if runs := self._by_sandbox.get(opened.sandbox):
            self._count(runs[-1], opened)
        elif len(early := self._early.setdefault(opened.sandbox, [])) < _MAX_EARLY_OPENS:
            early.append(opened)

    def waited(self, waited: PieceWaited) -> None:
        """For a part of a file that was opened before all of it was here."""
        self.waited_s += waited.waited_s
        if waited.key in self._overtook:  # of its transfer, so much less is hidden
            self._overtook[waited.key] += waited.waited_s
        if runs := self._by_sandbox.get(waited.sandbox):
            runs[-1].data_s += waited.waited_s
        else:
            self._early_s[waited.sandbox] = self._early_s.get(waited.sandbox, 0.0) + waited.waited_s

    def end(self, sandbox: int, invocation: str, expected: Iterable[FileKey]) -> RunSettled:
        """`expected`: what the model still believes to come for the run's audience."""
        run = self._by_invocation.pop(invocation, None)
        if run is None:
            return RunSettled(invocation, 0, {}, 0, 0, UNKNOWN_RUN)
        runs = [other for other in self._by_sandbox.pop(sandbox, ()) if other is not run]
        if runs:
            self._by_sandbox[sandbox] = runs
        wasted = self._give_up(run, set(expected))
        prefetched = sum(run.prefetched.values())
        return RunSettled(invocation, run.data_s, run.opened, prefetched, wasted, run.error, tuple(run.reasons))

    def audience(self, invocation: str) -> AudienceKey | None:
        run = self._by_invocation.get(invocation)
        return None if run is None else run.audience

    def close(self, sandbox: int) -> None:
        """The sandbox is gone; its run may still be asked after."""
        self._by_sandbox.pop(sandbox, None)
        self._early.pop(sandbox, None)
        self._early_s.pop(sandbox, None)

    # --- prefetches ---------------------------------------------------------------------------------------

    def begun(self, key: FileKey, reason: str) -> None:
        """It is on its way because it was predicted."""
        self._reasons.pop(key, None)
        self._reasons[key] = reason
        if len(self._reasons) > _MAX_REASONS:
            del self._reasons[next(iter(self._reasons))]

    def brought(self, audience: AudienceKey, key: FileKey, size: int, seconds: float) -> None:
        """It is here because it was predicted."""
        if self.is_over(audience):
            self.wasted_bytes += size
        else:
            self._brought.add(audience, key, size, seconds)

    def cancelled(self, audience: AudienceKey, size: int) -> None:
        """A wrong guess: what has come of it is of no use."""
        if size:
            self.wasted_bytes += size
        if size and not self.is_over(audience):
            self._cancelled[audience] = self._cancelled.get(audience, 0) + size

    def overtaken(self, key: FileKey, seconds: float) -> None:
        """It was predicted, and somebody opened it while it was on its way."""
        waited_s = self._overtook.pop(key, None)
        if waited_s is not None:
            self.hidden_s += max(0.0, seconds - waited_s)

    def dismiss(self, audience: AudienceKey) -> None:
        """A session is over: what it did not open was brought for nothing."""
        self._over[audience] = None
        if len(self._over) > _MAX_ENDED_SESSIONS:
            del self._over[next(iter(self._over))]
        self._cancelled.pop(audience, None)
        self.wasted_bytes += self._brought.give_up(audience)

    def is_over(self, audience: AudienceKey) -> bool:
        """Nobody will ask what was brought for it."""
        return audience in self._over

    def returned(self, audience: AudienceKey) -> None:
        """A session's name may be used again."""
        self._over.pop(audience, None)

    def figures(self) -> dict[str, float]:
        opens: dict[str, float] = {f"opens_{found}": number for found, number in self.opens.items()}
        return opens | {
            "prefetched_used_bytes": self.used_bytes,
            "wasted_bytes": self.wasted_bytes,
            "waited_s": self.waited_s,
            "hidden_s": self.hidden_s,
        }

    # --- inside -------------------------------------------------------------------------------------------

    def _count(self, run: RunAccount, opened: FileOpened) -> None:
        key = opened.key
        run.data_s += opened.waited_s
        self.waited_s += opened.waited_s
        if opened.found is None:
            said = opened.error if opened.error.startswith(f"{key}: ") else f"{key}: {opened.error}"
            run.error = run.error or said
            return
        run.opened[opened.found] = run.opened.get(opened.found, 0) + 1
        self.opens[opened.found] += 1
        if opened.found is Found.PREFETCHED and key not in run.prefetched:
            run.prefetched[key] = opened.size
            self.used_bytes += opened.size
            if len(run.reasons) < _MAX_REASONS_IN_RECORD and (reason := self._reasons.get(key)):
                run.reasons.append(f"{key}: {reason}")
        self._found_use(key, opened)
        self._accessed(run, opened)

    def _found_use(self, key: FileKey, opened: FileOpened) -> None:
        brought = self._brought.opened(key)
        if brought is not None:
            audience, size, took_s = brought
            if opened.found is Found.FETCHED:  # it had to go again before it was opened
                self.cancelled(audience, size)
            else:
                self.hidden_s += max(0.0, took_s - opened.waited_s)
        elif opened.found is Found.PREFETCHED and len(self._overtook) < _MAX_EARLY_OPENS:
            self._overtook[key] = opened.waited_s

    def _give_up(self, run: RunAccount, expected: set[FileKey]) -> int:
        """What was brought for its audience, was not opened, and is not expected any more."""
        if function_of(run.audience[1]) is not None:
            if any(other.audience == run.audience for other in self._by_invocation.values()):
                return 0  # another call of the function may still open it
            expected = set()
        wasted = self._brought.give_up(run.audience, expected)
        self.wasted_bytes += wasted
        return wasted + self._cancelled.pop(run.audience, 0)
