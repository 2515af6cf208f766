"""The prefetcher of a node: a state machine inside the scheduler that fetches files before they are opened.

When a session begins or a call arrives, the prefetcher requests a prediction from the shell. The policy chooses among
the predicted files, and they are fetched in turn within a budget.

    SessionBegan, InvocationArrived ─▶ Predict ─▶ FilesPredicted ─▶ Fetch ─▶ FetchEnded
                                                     │                 ▲
                                 another, or the end └─▶ CancelFetch ──┘ (the fetch still ends, once)

A file has at most one fetch in flight, however many audiences are expected to open it. The fetch is cancelled when no
audience is expected to open the file any more, and counts against the budget until its end is reported. If a function
opens the file in the meantime, the transfer continues for that open: a cancellation has no effect, and `FetchEnded`
reports when the file is there.
"""

from collections.abc import Iterable, Sequence

from aliquot.core.commands import CancelFetch, Command, Fetch, Predict
from aliquot.core.errors import EventError
from aliquot.core.events import DatasetRemoved, FetchEnded, FilesPredicted, LikelyFile, SessionBegan
from aliquot.core.interfaces import FileChoice, Prefetching
from aliquot.core.prefetching.backoff import Backoff
from aliquot.core.prefetching.fetch_queue import FetchQueue
from aliquot.core.prefetching.records import (
    Audience,
    AudienceKey,
    DatasetReaders,
    FetchNumbers,
    FileKey,
    PrefetchFile,
    WantedFile,
    audience_of,
)

PREDICTION_TIMEOUT_S = 5  # after that another prediction may be requested


class Prefetcher:
    """Tracks the files that audiences are expected to open, and fetches them within the budget."""

    def __init__(
        self, policy: Prefetching, outbox: list[Command], node: str, readers: DatasetReaders, numbers: FetchNumbers
    ) -> None:
        self.policy = policy
        self._outbox = outbox
        self.queue = FetchQueue(policy.limits)
        self.backoff = Backoff()
        self.node = node
        self.readers = readers  # of all nodes
        self._numbers = numbers
        self.audiences: dict[AudienceKey, Audience] = {}
        self.files: dict[FileKey, PrefetchFile] = {}
        self.in_flight: dict[int, PrefetchFile] = {}
        self.needs_decision = False  # whether `decide` may have something to do
        self._unwanted: dict[FileKey, str] = {}  # fetches that no audience needs any more, with the reason

    # --- audiences --------------------------------------------------------------------------------------

    def session_began(self, event: SessionBegan, *, now: float) -> None:
        if self.policy.wants_predictions and self.readers.has_any(event.tenant):
            self._request_prediction(self._audience(event.tenant, event.session), "the session began", now)

    def function_called(self, tenant: str, function: str, session: str | None, *, now: float) -> None:
        """Request a prediction after a call of a function that reads datasets."""
        if self.policy.wants_predictions:
            audience = self._audience(tenant, audience_of(session, function))
            audience.function = function
            self._request_prediction(audience, f"a call of {function} has come", now)

    def session_ended(self, tenant: str, session: str) -> None:
        audience = self.audiences.get((tenant, session))
        if audience is not None:
            self._remove_audience(audience, "its session ended")

    def drop_unread(self, tenant: str, datasets: Sequence[str]) -> None:
        """Drop the files of datasets that no function of the tenant reads any more."""
        queue = self.queue.tenants.get(tenant)
        for dataset in datasets:
            for audience in list(queue.audiences.values()) if queue is not None else ():
                self._drop_dataset(audience, dataset, f"no function of {tenant} reads {dataset} any more")

    def audience_left(self, key: AudienceKey, reason: str) -> None:
        """Drop an audience that has ended or belongs to another node now."""
        audience = self.audiences.get(key)
        if audience is not None:
            self._remove_audience(audience, reason)

    def dataset_removed(self, event: DatasetRemoved) -> None:
        self.backoff.forget(event.dataset)
        wanting = [file.wanted_by for key, file in self.files.items() if key[0] == event.dataset]
        for audience in {key: audience for wanted_by in wanting for key, audience in wanted_by.items()}.values():
            self._drop_dataset(audience, event.dataset, f"dataset {event.dataset} was removed")

    # --- predictions ------------------------------------------------------------------------------------

    def files_predicted(self, event: FilesPredicted, *, now: float) -> None:
        """Replace the files to fetch for an audience by the policy's choice among the predicted ones."""
        audience = self.audiences.get((event.tenant, event.session))
        if audience is None:  # it has ended in the meantime
            return
        audience.requested_at = None
        in_flight = audience.in_flight()
        useful = [file for file in event.files if self._is_useful(audience, file, in_flight, now)]
        chosen = self.policy.choose(event.model, useful, in_flight)
        self._replace(
            audience,
            chosen,
            f"{event.model} does not expect it any more" if event.model else "no model expects it any more",
        )
        if audience.next_reason is not None:
            self._request_prediction(audience, audience.next_reason, now)

    def _is_useful(self, audience: Audience, file: LikelyFile, in_flight: Iterable[FileKey], now: float) -> bool:
        key = (file.dataset, file.path)
        return self.readers.reads(audience.queue.tenant, file.dataset) and (
            key in in_flight or not self.backoff.must_wait(key, now=now)
        )

    def _request_prediction(self, audience: Audience, reason: str, now: float) -> None:
        """Request one prediction at a time, because calls may arrive faster than a model answers."""
        if audience.requested_at is not None and now < audience.requested_at + PREDICTION_TIMEOUT_S:
            audience.next_reason = reason
            return
        audience.requested_at, audience.next_reason = now, None
        self._outbox.append(Predict(audience.queue.tenant, audience.session, audience.function, reason, self.node))

    def _audience(self, tenant: str, session: str) -> Audience:
        audience = self.audiences.get((tenant, session))
        if audience is None:
            queue = self.queue.tenant(tenant)
            audience = self.audiences[tenant, session] = queue.audiences[session] = Audience(queue, session)
        return audience

    def _remove_audience(self, audience: Audience, reason: str) -> None:
        self._replace(audience, (), reason)
        queue = audience.queue
        del self.audiences[audience.key], queue.audiences[audience.session]
        queue.waiting.pop(audience.session, None)
        self.queue.drop_if_empty(queue)

    def _drop_dataset(self, audience: Audience, dataset: str, reason: str) -> None:
        self.needs_decision = True
        for key, want in list(audience.wants.items()):
            if key[0] == dataset:
                del audience.wants[key]
                self._unwant(want.file, audience, reason)
        self.queue.requeue(audience)

    def _replace(self, audience: Audience, choices: Iterable[FileChoice], reason: str) -> None:
        """Replace the files that the audience is expected to open."""
        self.needs_decision = True
        before, audience.wants = audience.wants, {}
        for likely, why in choices:
            key = (likely.dataset, likely.path)
            file = self.files.get(key)
            if file is None:
                file = self.files[key] = PrefetchFile(key, likely.size)
            elif file.fetch is None:
                file.size = likely.size
            file.wanted_by[audience.key] = audience
            audience.wants.setdefault(key, WantedFile(file, why))
        for key, want in before.items():
            if key not in audience.wants:
                self._unwant(want.file, audience, reason)
        if audience.wants:
            self.queue.requeue(audience)

    def _unwant(self, file: PrefetchFile, audience: Audience, reason: str) -> None:
        del file.wanted_by[audience.key]
        if file.wanted_by:
            return
        if file.fetch is None:
            del self.files[file.key]
        else:
            self._unwanted[file.key] = reason

    # --- fetches ----------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Cancel fetches that no audience needs, and begin those that fit the budget, after all events of the step."""
        self.needs_decision = False
        for key, reason in self._unwanted.items():
            file = self.files.get(key)
            if file is not None and file.fetch is not None and not file.wanted_by and not file.cancelled:
                file.cancelled = True
                self._outbox.append(CancelFetch(file.fetch, reason, self.node))
        self._unwanted.clear()
        while (found := self.queue.take()) is not None:
            audience, (file, reason) = found
            file.fetch = self._numbers.next(self.node)
            self.in_flight[file.fetch] = file
            self.queue.begin(file, audience.queue)
            self._outbox.append(
                Fetch(file.fetch, audience.queue.tenant, audience.session, *file.key, reason, self.node)
            )

    def fetch_ended(self, event: FetchEnded, *, now: float) -> None:
        """Free the budget of a fetch that ended. A failed file is delayed before it is fetched again."""
        file = self.in_flight.pop(event.fetch)
        self.needs_decision = True
        self.queue.end(file)
        file.fetch = None
        if file.cancelled:  # the file may be there or not, and audiences that want it again wait their turn
            file.cancelled = False
            for audience in file.wanted_by.values():
                self.queue.requeue(audience)
            if not file.wanted_by:
                del self.files[file.key]
            return
        if event.error:
            self.backoff.failed(file.key, now=now)
        else:
            self.backoff.succeeded(file.key)
        for audience in file.wanted_by.values():
            del audience.wants[file.key]
        del self.files[file.key]


def check_files(event: FilesPredicted) -> None:
    """Raise `EventError` if a predicted file is impossible."""
    for file in event.files:
        if not 0 <= file.probability <= 1 or file.size < 0:
            raise EventError(f"{file.dataset}/{file.path}: P {file.probability} with {file.size} bytes is impossible")
