"""The sessions of users who repeat a workflow, and of one who reads a set in a new order each time.

Pure: the same seed gives the same sessions.
"""

from random import Random

from msgspec import Struct

from aliquot.core.units import MB

CONFIG_BYTES = 4_000
SETS = 4  # shared by all users, before each continues with its own checkpoint
SHARDS = 4
DEVIATES = 20  # one in so many sessions evaluates on another user's files


class WorkloadFile(Struct, frozen=True):
    """A file of the origin."""

    path: str
    size: int


class ReadSession(Struct, frozen=True):
    """The files that one session of a user reads, in order. Work can begin after the first `batch` of them."""

    user: str
    files: tuple[WorkloadFile, ...]
    batch: int
    repeats: bool = True  # like the user's usual sessions

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    def in_folder(self, folder: str) -> "ReadSession":
        """Return the same session with all files in a folder."""
        moved = tuple(WorkloadFile(folder + file.path, file.size) for file in self.files)
        return ReadSession(self.user, moved, self.batch, self.repeats)


class RepeatedWorkflow:
    """Sessions that read a config, the shards of a set, the last checkpoint, and the files to evaluate on."""

    def __init__(self, users: int, session_bytes: int, seed: int = 0) -> None:
        self._random = Random(f"workflow/{seed}")
        self._session_count = 0  # number of sessions
        self.users = tuple(f"user{number}" for number in range(1, users + 1))
        sets = min(SETS, users)
        shards = [
            tuple(
                WorkloadFile(f"sets/{name}/shard-{shard}.bin", self._near(session_bytes // 10))
                for shard in range(SHARDS)
            )
            for name in "abcd"[:sets]
        ]
        self._config = {user: WorkloadFile(f"configs/{user}.json", CONFIG_BYTES) for user in self.users}
        self._shards = {user: shards[index % sets] for index, user in enumerate(self.users)}
        self._checkpoint = {
            user: WorkloadFile(f"checkpoints/{user}/last.bin", self._near(session_bytes * 4 // 10))
            for user in self.users
        }
        self._eval = {
            user: WorkloadFile(f"eval/{user}.bin", self._near(session_bytes * 2 // 10)) for user in self.users
        }

    @property
    def files(self) -> dict[str, int]:
        every = [*self._config.values(), *self._checkpoint.values(), *self._eval.values()]
        every += [file for shards in self._shards.values() for file in shards]
        return {file.path: file.size for file in every}

    def regular(self, user: str) -> ReadSession:
        """Return the user's usual session."""
        return self._session(user, self._eval[user])

    def next_session(self, user: str) -> ReadSession:
        """Return the user's next session. Some evaluate on the files of another user."""
        self._session_count += 1
        others = [other for other in self.users if other != user]
        if others and self._session_count % DEVIATES == DEVIATES // 2:
            return self._session(user, self._eval[self._random.choice(others)], repeats=False)
        return self.regular(user)

    def interleaved(self, sessions: int) -> list[ReadSession]:
        """Return so many sessions of each user, in random turns of all users."""
        turns = [user for _ in range(sessions) for user in self._random.sample(self.users, len(self.users))]
        return [self.next_session(user) for user in turns]

    def _session(self, user: str, evaluated: WorkloadFile, *, repeats: bool = True) -> ReadSession:
        files = (self._config[user], *self._shards[user], self._checkpoint[user], evaluated)
        return ReadSession(user, files, batch=2, repeats=repeats)

    def _near(self, size: int) -> int:
        return int(size * self._random.uniform(0.8, 1.2))


# Megabytes of the first files that a recorded UNet3D training opened (DFTracer's example trace).
RECORDED = (119, 172, 209, 161, 161, 174, 168, 168, 188, 154, 200, 194, 143, 181, 148, 162)


class ShuffledEpochs:
    """A training run that reads a random half of a set in random order each epoch, so that nothing can be learned.

    Sizes are those of a recorded run, which read 99 of its 168 files in an epoch.
    """

    user = "shuffler"

    def __init__(self, files: int, megabyte: int = MB, seed: int = 0) -> None:
        self._random = Random(f"shuffled/{seed}")
        self._each = files
        self._files = [
            WorkloadFile(f"volumes/{index:03}.npz", RECORDED[index] * megabyte) for index in range(2 * files)
        ]

    @property
    def files(self) -> dict[str, int]:
        return {file.path: file.size for file in self._files}

    def epoch(self) -> ReadSession:
        """Return the session of the next epoch."""
        return ReadSession(self.user, tuple(self._random.sample(self._files, self._each)), batch=1)
