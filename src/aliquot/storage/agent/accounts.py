"""Count the files that each run opened, how long it waited for them, and which prefetches were wasted.

Nothing here does I/O. All calls come from one thread.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from aliquot.core.prefetching.records import AudienceKey, audience_of, function_of
from aliquot.storage.messages import BeginRun, RunSettled
from aliquot.storage.records import FileKey, Found
from aliquot.storage.view.events import FileOpened, PieceWaited

_MAX_EARLY_OPENS = 10_000  # opens of one sandbox before its run began
_MAX_REASONS = 10_000  # files whose reason for prefetching is remembered
_MAX_ENDED_SESSIONS = 10_000  # ended sessions whose prefetches may still report
_MAX_REASONS_IN_RECORD = 16  # files of a run's record that state why they were prefetched
UNKNOWN_RUN = "the storage agent knows nothing of it"


class RunAccount:
    """The counters of one invocation, from its start to its record."""

    __slots__ = ("audience", "data_s", "error", "message", "opened", "prefetched", "reasons")

    def __init__(self, message: BeginRun) -> None:
        self.message = message
        self.audience: AudienceKey = (message.tenant, audience_of(message.session, message.function))
        self.data_s = 0.0
        self.opened: dict[Found, int] = {}
        self.prefetched: dict[FileKey, int] = {}
        self.error = ""
        self.reasons: list[str] = []


class RunAccounts:
    """The counters of all runs on the node. `accessed` is called with each open once its run is known."""

    def __init__(self, accessed: Callable[[RunAccount, FileOpened], None]) -> None:
        self._accessed = accessed
        self._by_sandbox: dict[int, list[RunAccount]] = {}  # nested calls of a group: innermost last
        self._by_invocation: dict[str, RunAccount] = {}
        self._early: dict[int, list[FileOpened]] = {}
        self._early_s: dict[int, float] = {}  # seconds waited for parts of files before the run began
        self._unopened = UnopenedPrefetches()
        self._cancelled: dict[AudienceKey, int] = {}  # bytes not yet reported in a record
        self._overtaken: dict[FileKey, float] = {}  # opened during their prefetch: seconds waited
        self._reasons: dict[FileKey, str] = {}  # oldest first
        self._ended: dict[AudienceKey, None] = {}  # ended sessions, oldest first
        self.opens = dict.fromkeys(Found, 0)
        self.used_bytes = 0  # of prefetched files that were opened
        self.wasted_bytes = 0
        self.waited_s = 0.0
        self.hidden_s = 0.0  # transfer time that no run waited for

    # --- runs ---------------------------------------------------------------------------------------------

    def begin(self, message: BeginRun) -> None:
        run = RunAccount(message)
        self.reopen(run.audience)
        self._by_invocation[message.invocation] = run
        self._by_sandbox.setdefault(message.sandbox, []).append(run)
        run.data_s += self._early_s.pop(message.sandbox, 0.0)
        for opened in self._early.pop(message.sandbox, ()):
            self._count(run, opened)

    def opened(self, opened: FileOpened) -> None:
        if runs := self._by_sandbox.get(opened.sandbox):
            self._count(runs[-1], opened)
        elif len(early := self._early.setdefault(opened.sandbox, [])) < _MAX_EARLY_OPENS:
            early.append(opened)

    def waited(self, waited: PieceWaited) -> None:
        """Count a wait for a part of a file that was opened before its transfer ended."""
        self.waited_s += waited.waited_s
        if waited.key in self._overtaken:  # this part of the transfer was not hidden
            self._overtaken[waited.key] += waited.waited_s
        if runs := self._by_sandbox.get(waited.sandbox):
            runs[-1].data_s += waited.waited_s
        else:
            self._early_s[waited.sandbox] = self._early_s.get(waited.sandbox, 0.0) + waited.waited_s

    def end(self, sandbox: int, invocation: str, expected: Iterable[FileKey]) -> RunSettled:
        """Close a run and return its totals. `expected` are files that its audience may still open."""
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
        """Forget an ended sandbox. `end` still works for its run."""
        self._by_sandbox.pop(sandbox, None)
        self._early.pop(sandbox, None)
        self._early_s.pop(sandbox, None)

    # --- prefetches ---------------------------------------------------------------------------------------

    def prefetch_started(self, key: FileKey, reason: str) -> None:
        """Note why a prefetch was started."""
        self._reasons.pop(key, None)
        self._reasons[key] = reason
        if len(self._reasons) > _MAX_REASONS:
            del self._reasons[next(iter(self._reasons))]

    def prefetched(self, audience: AudienceKey, key: FileKey, size: int, seconds: float) -> None:
        """Count a finished prefetch."""
        if self.has_ended(audience):
            self.wasted_bytes += size
        else:
            self._unopened.add(audience, key, size, seconds)

    def prefetch_cancelled(self, audience: AudienceKey, size: int) -> None:
        """Count the bytes of a prefetch that did not finish."""
        if size:
            self.wasted_bytes += size
        if size and not self.has_ended(audience):
            self._cancelled[audience] = self._cancelled.get(audience, 0) + size

    def prefetch_overtaken(self, key: FileKey, seconds: float) -> None:
        """Count a finished prefetch whose file was opened during the transfer."""
        waited_s = self._overtaken.pop(key, None)
        if waited_s is not None:
            self.hidden_s += max(0.0, seconds - waited_s)

    def end_session(self, audience: AudienceKey) -> None:
        """End a session. Prefetched files that it did not open are wasted."""
        self._ended[audience] = None
        if len(self._ended) > _MAX_ENDED_SESSIONS:
            del self._ended[next(iter(self._ended))]
        self._cancelled.pop(audience, None)
        self.wasted_bytes += self._unopened.give_up(audience)

    def has_ended(self, audience: AudienceKey) -> bool:
        """Return whether a session has ended."""
        return audience in self._ended

    def reopen(self, audience: AudienceKey) -> None:
        """Reopen a session, because its name is used again."""
        self._ended.pop(audience, None)

    def figures(self) -> dict[str, float]:
        opens: dict[str, float] = {f"opens_{found}": number for found, number in self.opens.items()}
        return opens | {
            "prefetched_used_bytes": self.used_bytes,
            "wasted_bytes": self.wasted_bytes,
            "waited_s": self.waited_s,
            "hidden_s": self.hidden_s,
        }

    # --- counting -----------------------------------------------------------------------------------------

    def _count(self, run: RunAccount, opened: FileOpened) -> None:
        key = opened.key
        run.data_s += opened.waited_s
        self.waited_s += opened.waited_s
        if opened.found is None:
            error = opened.error if opened.error.startswith(f"{key}: ") else f"{key}: {opened.error}"
            run.error = run.error or error
            return
        run.opened[opened.found] = run.opened.get(opened.found, 0) + 1
        self.opens[opened.found] += 1
        if opened.found is Found.PREFETCHED and key not in run.prefetched:
            run.prefetched[key] = opened.size
            self.used_bytes += opened.size
            if len(run.reasons) < _MAX_REASONS_IN_RECORD and (reason := self._reasons.get(key)):
                run.reasons.append(f"{key}: {reason}")
        self._count_use(key, opened)
        self._accessed(run, opened)

    def _count_use(self, key: FileKey, opened: FileOpened) -> None:
        prefetched = self._unopened.opened(key)
        if prefetched is not None:
            audience, size, took_s = prefetched
            if opened.found is Found.FETCHED:  # it was evicted before it was opened
                self.prefetch_cancelled(audience, size)
            else:
                self.hidden_s += max(0.0, took_s - opened.waited_s)
        elif opened.found is Found.PREFETCHED and len(self._overtaken) < _MAX_EARLY_OPENS:
            self._overtaken[key] = opened.waited_s

    def _give_up(self, run: RunAccount, expected: set[FileKey]) -> int:
        """Return the bytes prefetched for the run's audience that were not opened and are no longer expected."""
        if function_of(run.audience[1]) is not None:
            if any(other.audience == run.audience for other in self._by_invocation.values()):
                return 0  # another call of the function may still open it
            expected = set()
        wasted = self._unopened.give_up(run.audience, expected)
        self.wasted_bytes += wasted
        return wasted + self._cancelled.pop(run.audience, 0)


class UnopenedPrefetches:
    """Prefetched files that have not been opened yet, by audience and by file."""

    def __init__(self) -> None:
        self._files: dict[AudienceKey, dict[FileKey, tuple[int, float]]] = {}  # bytes, seconds of the transfer
        self._audiences: dict[FileKey, set[AudienceKey]] = {}  # for which the file was prefetched

    def add(self, audience: AudienceKey, key: FileKey, size: int, seconds: float) -> None:
        self._files.setdefault(audience, {})[key] = (size, seconds)
        self._audiences.setdefault(key, set()).add(audience)

    def opened(self, key: FileKey) -> tuple[AudienceKey, int, float] | None:
        """Remove an opened file. Return an audience it was prefetched for, its bytes and its transfer seconds."""
        if key not in self._audiences:
            return None
        audiences = sorted(self._audiences[key])
        taken = [self._take(audience, key) for audience in audiences]
        return audiences[0], taken[0][0], max(seconds for _, seconds in taken)

    def give_up(self, audience: AudienceKey, keep: AbstractSet[FileKey] = frozenset()) -> int:
        """Remove the audience's files except those in `keep`, and return their bytes."""
        return sum(self._take(audience, key)[0] for key in list(self._files.get(audience, ())) if key not in keep)

    def _take(self, audience: AudienceKey, key: FileKey) -> tuple[int, float]:
        files, audiences = self._files[audience], self._audiences[key]
        taken = files.pop(key)
        audiences.remove(audience)
        if not files:
            del self._files[audience]
        if not audiences:
            del self._audiences[key]
        return taken
