"""Interference: compare users who read at the same time, and whose accesses were learned together, with each alone."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from aliquot.core.units import MB
from aliquot_bench.origin.link import ServedOrigin
from aliquot_bench.prefetch.part import MIN_SESSIONS, PrefetchSizes
from aliquot_bench.prefetch.platform import PrefetchPlatform, serving
from aliquot_bench.prefetch.trial import SessionTrial, hidden
from aliquot_bench.prefetch.workload import ReadSession, RepeatedWorkflow
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_least

USERS = 8
LEAD_S = 6.0  # long enough to fetch the files of all
APART_S = 0.3  # between the beginnings of sessions, because there is no core for each
FETCHED = "fetched"
TENANT = "lab"


class InterferencePart:
    """The part `interference`."""

    name = "interference"

    def __init__(self, sizes: PrefetchSizes) -> None:
        self._sizes = sizes
        self._workflow = RepeatedWorkflow(USERS, sizes.concurrent_bytes, seed=1)
        self._plain: dict[str, float] = {}
        self._alone: dict[str, SessionTrial] = {}
        self._many_tenants: dict[str, SessionTrial] = {}
        self._one_tenant: dict[str, SessionTrial] = {}
        self.steps = sizes.alone + 4

    @property
    def files(self) -> dict[str, int]:
        return {f"concurrent/{path}": size for path, size in self._workflow.files.items()}

    def run(self, link: ServedOrigin, on_step: Callable[[str], None]) -> None:
        for user in self._workflow.users[: self._sizes.alone]:
            on_step(f"{user} alone")
            own = [self._regular(user) for _ in range(MIN_SESSIONS)]
            with serving(link, [user]) as platform:
                self._learn(platform, own)
                self._alone[user] = platform.run(self._regular(user), LEAD_S)
        with serving(link, self._workflow.users) as platform:
            on_step(f"{USERS} users' sessions in turn, to learn from")
            # Measured before there is a model, because a model prefetches at the beginning of a session.
            self._plain = {
                user: platform.run(self._regular(user), plain=True).loading_s for user in self._workflow.users
            }
            self._learn(
                platform, [self._regular(each.user) for each in self._workflow.interleaved(self._sizes.training)]
            )
            on_step(f"{USERS} users at once")
            self._many_tenants = self._concurrent(platform)
        with serving(link, self._workflow.users, tenant=TENANT) as platform:
            on_step(f"{USERS} users of one tenant in turn, to learn from")
            self._learn(
                platform, [self._regular(each.user) for each in self._workflow.interleaved(self._sizes.training)]
            )
            on_step(f"{USERS} users of one tenant at once")
            self._one_tenant = self._concurrent(platform)

    def _regular(self, user: str) -> ReadSession:
        return self._workflow.regular(user).in_folder("concurrent/")

    def _learn(self, platform: PrefetchPlatform, sessions: Sequence[ReadSession]) -> None:
        for session in sessions:
            platform.run(session)
        platform.train()
        platform.empty_cache()

    def _concurrent(self, platform: PrefetchPlatform) -> dict[str, SessionTrial]:
        def run(index: int) -> SessionTrial:
            time.sleep(index * APART_S)
            return platform.run(self._regular(self._workflow.users[index]), LEAD_S)

        with ThreadPoolExecutor(USERS) as threads:
            return {trial.user: trial for trial in threads.map(run, range(USERS))}

    def goals(self) -> list[Goal]:
        groups = {"eight tenants": self._many_tenants, "eight users of one tenant": self._one_tenant}
        return [
            at_least(f"{who} at once: opens foreseen, the worst of them", _worst(trials), 90, "%")
            for who, trials in groups.items()
        ]

    def tables(self) -> list[ResultTable]:
        rows: list[list[str | float | None]] = []
        for user in self._workflow.users:
            plain = self._plain[user]
            trials = (self._alone.get(user), self._many_tenants[user], self._one_tenant[user])
            figures = [value for trial in trials for value in _figures(trial, plain)]
            rows.append([user, plain, *figures])
        columns = ["user", "plain, s"]
        for how in ("alone", "tenants at once", "users of one tenant at once"):
            columns += [f"{how}: hidden, %", "opens foreseen, %"]
        title = (
            f"Interference: {USERS} users and sessions of {self._sizes.concurrent_bytes / MB:g} MB, {LEAD_S:g} s ahead:"
            " learned and measured alone; learned from one log and measured within a few seconds"
        )
        return [ResultTable(title, columns, rows)]


def _worst(trials: dict[str, SessionTrial]) -> float | None:
    return min((share for trial in trials.values() if (share := _foreseen(trial)) is not None), default=None)


def _foreseen(trial: SessionTrial) -> float | None:
    """Return the percentage of opens that did not have to fetch their file."""
    opens = sum(trial.opened.values())
    return PERCENT * (1 - trial.opened.get(FETCHED, 0) / opens) if opens else None


def _figures(trial: SessionTrial | None, plain_s: float) -> tuple[float | None, float | None]:
    if trial is None:
        return None, None
    return PERCENT * hidden(trial.loading_s, plain_s), _foreseen(trial)
