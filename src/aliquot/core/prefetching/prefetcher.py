"""The prefetcher: a state machine within the scheduler's. A session or a call comes, and the shell is asked to predict;
of what is predicted the policy chooses, and that is brought in turn, within the budget.

    SessionBegan, InvocationArrived ─▶ Predict ─▶ FilesPredicted ─▶ Fetch ─▶ FetchEnded
                                                     │                 ▲
                                 another, or the end └─▶ CancelFetch ──┘ (it ends all the same, once)

A file is on its way at most once, however many are expected to open it, and is cancelled when none of them is any more.
What is cancelled counts until its end is told. That somebody has opened a file meanwhile needs no command: the transfer
goes on as that open's own, a cancellation passes it by, and `FetchEnded` says when it is here.
"""

from collections.abc import Iterable, Sequence

from aliquot.core.commands import CancelFetch, Command, Fetch, Predict
from aliquot.core.errors import EventError
from aliquot.core.events import DatasetRemoved, FetchEnded, FilesPredicted, LikelyFile, SessionBegan
from aliquot.core.interfaces import Prefetching, Wish
from aliquot.core.prefetching.backoff import Backoff
from aliquot.core.prefetching.readers import Readers
from aliquot.core.prefetching.records import Audience, AudienceKey, File, FileKey, Want, audience_of
from aliquot.core.prefetching.turns import Turns

PATIENCE_S = 5  # for a prediction: after that another may be asked for


class Prefetcher:
    def __init__(self, policy: Prefetching, outbox: list[Command]) -> None:
        self.policy = policy
        self._outbox = outbox
        self.turns = Turns(policy.limits)
        self.backoff = Backoff()
        self.readers = Readers()
        self.audiences: dict[AudienceKey, Audience] = {}
        self.files: dict[FileKey, File] = {}
        self.in_flight: dict[int, File] = {}
        self.started = 0  # also the last number given out
        self.restless = False  # whether there may be something to decide
        self._doubtful: dict[FileKey, str] = {}  # on their way for nobody, and why

    # --- who is here ------------------------------------------------------------------------------------

    def session_began(self, event: SessionBegan, *, now: float) -> None:
        if self.policy.asks and self.readers.any_of(event.tenant):
            self._ask(self._audience(event.tenant, event.session), "the session began", now)

    def called(self, tenant: str, function: str, session: str | None, *, now: float) -> None:
        """A function that reads datasets."""
        if self.policy.asks:
            audience = self._audience(tenant, audience_of(session, function))
            audience.function = function
            self._ask(audience, f"a call of {function} has come", now)

    def session_ended(self, tenant: str, session: str) -> None:
        audience = self.audiences.get((tenant, session))
        if audience is not None:
            self._dismiss(audience, "its session ended")

    def function_changed(self, tenant: str, before: Sequence[str], after: Sequence[str]) -> None:
        """It reads these datasets instead of those."""
        line = self.turns.lines.get(tenant)
        for dataset in self.readers.change(tenant, before, after):
            for audience in list(line.audiences.values()) if line is not None else ():
                self._drop_dataset(audience, dataset, f"no function of {tenant} reads {dataset} any more")

    def function_removed(self, tenant: str, function: str, datasets: Sequence[str]) -> None:
        audience = self.audiences.get((tenant, audience_of("", function)))
        if audience is not None:
            self._dismiss(audience, "its function was removed")
        self.function_changed(tenant, datasets, ())

    def dataset_removed(self, event: DatasetRemoved) -> None:
        self.backoff.forget(event.dataset)
        wanting = [file.wanters for key, file in self.files.items() if key[0] == event.dataset]
        for audience in {key: audience for wanters in wanting for key, audience in wanters.items()}.values():
            self._drop_dataset(audience, event.dataset, f"dataset {event.dataset} was removed")

    # --- what is expected -------------------------------------------------------------------------------

    def predicted(self, event: FilesPredicted, *, now: float) -> None:
        for file in event.files:
            if not 0 <= file.probability <= 1 or file.size < 0:
                raise EventError(f"{file.dataset}/{file.path}: P {file.probability}, {file.size} bytes cannot be")
        audience = self.audiences.get((event.tenant, event.session))
        if audience is None:  # it has ended meanwhile
            return
        audience.asked_at = None
        under_way = audience.under_way()
        useful = [file for file in event.files if self._is_useful(audience, file, under_way, now)]
        chosen = self.policy.choose(event.model, useful, under_way)
        self._replace(
            audience,
            chosen,
            f"{event.model} does not expect it any more" if event.model else "no model expects it any more",
        )
        if audience.again is not None:
            self._ask(audience, audience.again, now)

    def _is_useful(self, audience: Audience, file: LikelyFile, under_way: Iterable[FileKey], now: float) -> bool:
        key = (file.dataset, file.path)
        return self.readers.reads(audience.line.tenant, file.dataset) and (
            key in under_way or not self.backoff.waits(key, now=now)
        )

    def _ask(self, audience: Audience, reason: str, now: float) -> None:
        """One question at a time: calls may come faster than a model answers."""
        if audience.asked_at is not None and now < audience.asked_at + PATIENCE_S:
            audience.again = reason
            return
        audience.asked_at, audience.again = now, None
        self._outbox.append(Predict(audience.line.tenant, audience.session, audience.function, reason))

    def _audience(self, tenant: str, session: str) -> Audience:
        audience = self.audiences.get((tenant, session))
        if audience is None:
            line = self.turns.line(tenant)
            audience = self.audiences[tenant, session] = line.audiences[session] = Audience(line, session)
        return audience

    def _dismiss(self, audience: Audience, reason: str) -> None:
        self._replace(audience, (), reason)
        line = audience.line
        del self.audiences[audience.key], line.audiences[audience.session]
        line.waiting.pop(audience.session, None)
        self.turns.tidy(line)

    def _drop_dataset(self, audience: Audience, dataset: str, reason: str) -> None:
        self.restless = True
        for key, want in list(audience.wants.items()):
            if key[0] == dataset:
                del audience.wants[key]
                self._unwant(want.file, audience, reason)
        self.turns.stir(audience)

    def _replace(self, audience: Audience, wishes: Iterable[Wish], reason: str) -> None:
        """The audience is expected to open these, and no longer what it was before."""
        self.restless = True
        before, audience.wants = audience.wants, {}
        for likely, why in wishes:
            key = (likely.dataset, likely.path)
            file = self.files.get(key)
            if file is None:
                file = self.files[key] = File(key, likely.size)
            elif file.fetch is None:
                file.size = likely.size
            file.wanters[audience.key] = audience
            audience.wants.setdefault(key, Want(file, why))
        for key, want in before.items():
            if key not in audience.wants:
                self._unwant(want.file, audience, reason)
        if audience.wants:
            self.turns.stir(audience)

    def _unwant(self, file: File, audience: Audience, reason: str) -> None:
        del file.wanters[audience.key]
        if file.wanters:
            return
        if file.fetch is None:
            del self.files[file.key]
        else:
            self._doubtful[file.key] = reason

    # --- what is on its way -----------------------------------------------------------------------------

    def decide(self) -> None:
        """Cancel what nobody wants, begin what there is room for, now that all of the moment is known."""
        self.restless = False
        for key, reason in self._doubtful.items():
            file = self.files.get(key)
            if file is not None and file.fetch is not None and not file.wanters and not file.cancelled:
                file.cancelled = True
                self._outbox.append(CancelFetch(file.fetch, reason))
        self._doubtful.clear()
        while (found := self.turns.take()) is not None:
            audience, (file, reason) = found
            self.started += 1
            file.fetch = self.started
            self.in_flight[file.fetch] = file
            self.turns.begin(file, audience.line)
            self._outbox.append(Fetch(file.fetch, audience.line.tenant, audience.session, *file.key, reason))

    def ended(self, event: FetchEnded, *, now: float) -> None:
        file = self.in_flight.pop(event.fetch, None)
        if file is None:
            known = "has ended already" if 0 < event.fetch <= self.started else "never began"
            raise EventError(f"fetch {event.fetch} {known}")
        self.restless = True
        self.turns.end(file)
        file.fetch = None
        if file.cancelled:  # it may be here or not, and some may want it again by now: they wait their turn
            file.cancelled = False
            for audience in file.wanters.values():
                self.turns.stir(audience)
            if not file.wanters:
                del self.files[file.key]
            return
        if event.error:
            self.backoff.failed(file.key, now=now)
        else:
            self.backoff.came(file.key)
        for audience in file.wanters.values():
            del audience.wants[file.key]
        del self.files[file.key]
