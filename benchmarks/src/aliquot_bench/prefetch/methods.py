"""Three storage methods on a cold node, and how much learned prefetch hides by lead time."""

from collections.abc import Callable
from itertools import cycle, islice
from statistics import fmean, median

from aliquot.core.units import MB
from aliquot_bench.origin.link import ServedOrigin
from aliquot_bench.prefetch.part import PrefetchSizes
from aliquot_bench.prefetch.platform import PrefetchPlatform, serving
from aliquot_bench.prefetch.trial import LeadPoint, SessionTrial, curve, hidden, quantile, wasted_share
from aliquot_bench.prefetch.workload import RepeatedWorkflow
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_least, at_most

PLAIN = "plain remote mount"
VIEW = "the view, nothing predicted"
PRELOADED = "everything preloaded"
LEARNED = "learned prefetch"


class MethodsPart:
    """The part `methods`."""

    name = "methods"

    def __init__(self, sizes: PrefetchSizes) -> None:
        self._sizes = sizes
        self._workflow = RepeatedWorkflow(sizes.users, sizes.session_bytes)
        self._trials: dict[str, list[SessionTrial]] = {PLAIN: [], VIEW: [], PRELOADED: [], LEARNED: []}
        self._model = ""
        self.steps = 3 + 3 * sizes.each_method + len(sizes.leads_s) * sizes.each_lead

    @property
    def files(self) -> dict[str, int]:
        return self._workflow.files

    def run(self, link: ServedOrigin, on_step: Callable[[str], None]) -> None:
        users = self._workflow.users
        with serving(link, users) as learned, serving(link, users, "--prefetching", "none") as without:
            self._learn(learned, on_step)
            self._compare(without, on_step)
            turns = cycle(users)
            for number in range(self._sizes.each_lead):
                for lead_s in self._sizes.leads_s:
                    on_step(f"learned prefetch, {lead_s:g} s ahead, session {number + 1}")
                    learned.empty_cache()
                    trial = learned.measure(self._workflow.next_session(next(turns)), lead_s)
                    self._trials[LEARNED].append(trial)

    def _learn(self, platform: PrefetchPlatform, on_step: Callable[[str], None]) -> None:
        on_step(f"{self._sizes.training} sessions of each of {len(self._workflow.users)} users, to learn from")
        for session in self._workflow.interleaved(self._sizes.training):
            platform.run(session)
        on_step("learning")
        self._model = platform.train()

    def _compare(self, platform: PrefetchPlatform, on_step: Callable[[str], None]) -> None:
        """Measure the methods without prediction.

        The plain mount and the view alternate, so that a disturbance of the machine affects both alike.
        """
        sessions = [
            self._workflow.regular(user) for user in islice(cycle(self._workflow.users), self._sizes.each_method)
        ]
        for number, session in enumerate(sessions):
            on_step(f"{PLAIN}, session {number + 1}")
            self._trials[PLAIN].append(platform.measure(session, plain=True))
            on_step(f"{VIEW}, session {number + 1}")
            platform.empty_cache()
            self._trials[VIEW].append(platform.measure(session))
        on_step("preloading everything")
        platform.preload()
        for number, session in enumerate(sessions):
            on_step(f"{PRELOADED}, session {number + 1}")
            self._trials[PRELOADED].append(platform.measure(session))

    # --- goals and tables --------------------------------------------------------------------------------------

    def plain_s(self) -> dict[str, float]:
        """Return the loading time of each user from the plain mount, or the mean for users not measured."""
        every = [trial.loading_s for trial in self._trials[PLAIN]]
        own = {
            user: [each.loading_s for each in self._trials[PLAIN] if each.user == user] for user in self._workflow.users
        }
        return {user: median(values) if values else fmean(every) for user, values in own.items()}

    def points(self) -> list[LeadPoint]:
        """Return the points of the sessions that repeat. The others cannot be predicted."""
        return curve([trial for trial in self._trials[LEARNED] if trial.repeats], self.plain_s())

    def bars(self) -> dict[str, float]:
        """Return the mean loading time by method, for learned prefetch with enough lead time."""
        return {method: fmean(trial.loading_s for trial in trials) for method, trials in self._shown().items()}

    def _shown(self) -> dict[str, list[SessionTrial]]:
        enough = {point.lead_s for point in self.points() if point.enough}
        ahead = [trial for trial in self._trials[LEARNED] if trial.lead_s in enough]
        shown = {method: trials for method, trials in self._trials.items() if method != LEARNED}
        return {**shown, f"{LEARNED}, enough lead": ahead} if ahead else shown

    def goals(self) -> list[Goal]:
        points = self.points()
        above = [PERCENT * point.hidden for point in points if point.enough]
        below = [PERCENT * (point.ideal - point.hidden) for point in points if not point.enough]
        wasted = wasted_share(self._trials[LEARNED], self.files)
        return [
            at_least(
                "hidden of sessions that repeat, worst lead of at least the transfer time",
                min(above, default=None),
                90,
                "%",
            ),
            at_most("fits before the first read and is not hidden, worst lead", max(below, default=None), 10, "points"),
            at_most("wasted bytes", None if wasted is None else PERCENT * wasted, 10, "% of those moved"),
        ]

    def tables(self) -> list[ResultTable]:
        return [self._by_method(), self._by_lead()]

    def _by_method(self) -> ResultTable:
        plain = self.plain_s()
        rows: list[list[str | float | None]] = []
        for method, trials in self._shown().items():
            loading = [trial.loading_s for trial in trials]
            against = sum(plain[trial.user] for trial in trials)
            firsts = [trial.first_batch_s for trial in trials]
            wasted = fmean(trial.wasted_bytes(self.files) for trial in trials) / MB
            moved = fmean(trial.moved_bytes for trial in trials) / MB
            share = PERCENT * hidden(sum(loading), against)
            waits = [quantile(firsts, 50), quantile(firsts, 99)]
            rows.append([method, len(trials), fmean(loading), share, *waits, moved, wasted])
        columns = ["method", "sessions", "loading, s", "hidden, %", "first batch p50, s", "p99, s"]
        title = (
            f"Three storage methods on a cold node: {self._sizes.users} users, sessions of about"
            f" {self._sizes.session_bytes / MB:g} MB, config, shards, checkpoint, evaluation"
        )
        return ResultTable(title, [*columns, "moved, MB a session", "wasted, MB"], rows)

    def _by_lead(self) -> ResultTable:
        rows: list[list[str | float | None]] = []
        plain = self.plain_s()
        for point in self.points():
            own = [trial for trial in self._trials[LEARNED] if trial.lead_s == point.lead_s]
            odd = sum(not trial.repeats for trial in own)
            share = wasted_share(own, self.files)
            wasted = None if share is None else PERCENT * share
            firsts = [trial.first_batch_s for trial in own]
            seen = fmean(trial.loading_s for trial in own)
            everyone = hidden(sum(trial.loading_s for trial in own), sum(plain[trial.user] for trial in own))
            shares = [PERCENT * point.hidden, PERCENT * point.ideal, PERCENT * everyone]
            waits = [quantile(firsts, 50), quantile(firsts, 99)]
            rows.append([point.lead_s, len(own), odd, seen, *shares, wasted, *waits])
        columns = ["lead, s", "sessions", "out of the ordinary", "loading, s", "hidden where it repeats, %"]
        columns += ["at best, %", "hidden of all, %", "wasted, %", "first batch p50, s", "p99, s"]
        return ResultTable(f"Learned prefetch by lead time ({self._model})", columns, rows)
