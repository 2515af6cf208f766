"""The network's vocabulary: frequent steps have their own numbers, all others share hashed buckets."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log2
from zlib import crc32

from aliquot.learn.steps import BEGIN, CALL, OPEN, AccessStep, Session

PADDING, END = 0, 1
BUCKETS = 256
FIRST_BUCKET = 2
FIRST_STEP = FIRST_BUCKET + BUCKETS
MAX_STEPS = 7_900  # with own numbers; keeps the network below 5 MB with 32-bit weights
MAX_STEPS_INT8 = 33_000  # the same with 8-bit weights
_OPERATIONS = {OPEN: 1, CALL: 2, BEGIN: 3}  # fixed by stored networks, so a user's mark has none
FEATURES = 1 + len(_OPERATIONS)  # the size, and one for each operation
_MAX_SIZE_LOG2 = 40.0  # maps a tebibyte to 1


class Vocabulary:
    """The numbers of steps, which are the inputs and outputs of the network."""

    def __init__(self, steps: Sequence[AccessStep]) -> None:
        self.steps = list(steps)  # each as last seen
        self._numbers = {step.file: FIRST_STEP + index for index, step in enumerate(self.steps)}

    def __len__(self) -> int:
        return FIRST_STEP + len(self.steps)

    def number(self, file: str) -> int:
        known = self._numbers.get(file)
        return FIRST_BUCKET + crc32(file.encode()) % BUCKETS if known is None else known

    def step(self, number: int) -> AccessStep | None:
        """Return the step of a number, or None for a bucket, the end and padding."""
        return self.steps[number - FIRST_STEP] if number >= FIRST_STEP else None


def features(step: AccessStep) -> tuple[float, ...]:
    """Return the size and operation of a step as inputs of the network."""
    row = [log2(step.size + 1) / _MAX_SIZE_LOG2, 0.0, 0.0, 0.0]
    index = _OPERATIONS.get(step.operation)
    if index is not None:
        row[index] = 1.0
    return tuple(row)


def choose_vocabulary(sessions: Iterable[Session], max_steps: int = MAX_STEPS, min_seen: int = 2) -> Vocabulary:
    """Give numbers to the most frequent steps.

    Steps seen only once share the buckets, so that the network learns to handle unknown steps.
    """
    counts: Counter[str] = Counter()
    last: dict[str, AccessStep] = {}
    for session in sessions:
        for step in session:
            counts[step.file] += 1
            last[step.file] = step
    best = sorted((file for file, count in counts.items() if count >= min_seen), key=lambda file: (-counts[file], file))
    return Vocabulary([last[file] for file in best[:max_steps]])
