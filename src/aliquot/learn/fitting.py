"""The network in torch and its training: rounds over the data until the loss on held-back sessions stops falling.

A checkpoint after each round lets a killed training resume. Only this module imports torch, and only a process that
trains imports this module.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn

from aliquot.learn.registry import EpochResult
from aliquot.learn.steps import WINDOW, Session
from aliquot.learn.vocabulary import END, FEATURES, FIRST_STEP, PADDING, Vocabulary, features

EMBEDDING, FIRST, SECOND = 64, 128, 64  # widths of the layers
SEQUENCE_STEPS = 2 * WINDOW  # length of a training sequence
_BATCH = 48
_RATE = 6e-3
_MIN_BATCHES = 100  # per round: a small data set is passed more than once
_MIN_GAIN = 1e-3  # smallest improvement of the held-back loss that counts
_MAX_TRIALS = 20_000  # held-back steps that a round is scored on
_TOP = 5
OnRound = Callable[[EpochResult], None]
OnPart = Callable[[int, float], None]  # number of the round, and the share of it that is done


class Network(nn.Module):
    """An embedding joined with size and operation, two LSTM layers and a linear head.

    It returns a score for each number of the vocabulary at each step. The loss and the ONNX file apply the softmax.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(numbers, EMBEDDING)
        self.first = nn.LSTM(EMBEDDING + FEATURES, FIRST, batch_first=True)
        self.second = nn.LSTM(FIRST, SECOND, batch_first=True)
        self.head = nn.Linear(SECOND, numbers)

    def forward(self, numbers: Tensor, features: Tensor) -> Tensor:
        joined = torch.cat([self.embedding(numbers), features], dim=-1)
        outputs, _ = self.first(joined)
        outputs, _ = self.second(outputs)
        scores: Tensor = self.head(outputs)
        return scores

    def arrays(self) -> dict[str, Any]:
        """Return the weights as numpy arrays, by torch's names."""
        return {name: value.detach().numpy() for name, value in self.state_dict().items()}


class TrainingBudget(Struct, frozen=True):
    """The limits of a training."""

    epochs: int  # maximum number of rounds
    seconds: float  # maximum duration
    threads: int
    seed: int = 0


class TrainingSequences(Struct, frozen=True):
    """Parts of sessions, padded to the same length. `targets` holds the number of the next file at each step."""

    numbers: Any
    features: Any
    targets: Any


def training_sequences(sessions: Sequence[Session], vocabulary: Vocabulary) -> TrainingSequences:
    """Cut sessions into sequences of `SEQUENCE_STEPS` steps, and pad the last one of each."""
    numbers, rows, targets = [], [], []
    for session in sessions:
        known = [vocabulary.number(step.file) for step in session]
        following = _next_files(session, known)
        described = [features(step) for step in session]
        for begin in range(0, len(session), SEQUENCE_STEPS):
            end = min(begin + SEQUENCE_STEPS, len(session))
            missing = SEQUENCE_STEPS - (end - begin)
            numbers.append(known[begin:end] + [PADDING] * missing)
            rows.append(described[begin:end] + [(0.0,) * FEATURES] * missing)
            targets.append([*following[begin:end], *[PADDING] * missing])
    return TrainingSequences(torch.tensor(numbers), torch.tensor(rows), torch.tensor(targets))


def _next_files(session: Session, numbers: Sequence[int]) -> list[int]:
    """Return the number of the file that is opened next after each step. Marks between them are passed over."""
    following, after = [], END
    for step, number in zip(reversed(session), reversed(numbers), strict=True):
        following.append(after)
        if not step.is_mark:
            after = number
    return following[::-1]


def fit(
    learned: Sequence[Session],
    held_back: Sequence[Session],
    vocabulary: Vocabulary,
    budget: TrainingBudget,
    checkpoint: Path,
    on_round: OnRound,
    on_part: OnPart,
) -> tuple[Network, list[EpochResult]]:
    """Train the network and return it with the weights of the best round, and the learning curve."""
    torch.set_num_threads(budget.threads)
    torch.manual_seed(budget.seed)
    data, held_out = training_sequences(learned, vocabulary), training_sequences(held_back, vocabulary)
    network = Network(len(vocabulary))
    _set_initial_bias(network, data.targets)
    run = _TrainingRun(network, budget, len(data.numbers), checkpoint)
    run.resume()
    while not run.is_over():
        loss = run.run_round(data, on_part)
        point = run.record(loss, *_evaluate(network, held_out))
        run.save()
        on_round(point)
    network.load_state_dict(run.best)
    checkpoint.unlink(missing_ok=True)
    return network, run.curve


class _TrainingRun:
    """The state of a training: optimizer, schedule, learning curve and best weights."""

    def __init__(self, network: Network, budget: TrainingBudget, sequences: int, checkpoint: Path) -> None:
        self.network = network
        self.budget = budget
        self.curve: list[EpochResult] = []
        self.best: dict[str, Tensor] = {}
        batches = math.ceil(sequences / _BATCH)
        self._passes = math.ceil(_MIN_BATCHES / batches)
        self._batches = batches * self._passes
        self._optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(
            self._optimizer, max_lr=_RATE, total_steps=budget.epochs * self._batches + 1, pct_start=0.15
        )
        self._checkpoint = checkpoint
        self._began = time.monotonic()

    def is_over(self) -> bool:
        """Return whether all rounds are done, the time is up, or the last two rounds improved nothing."""
        if len(self.curve) >= self.budget.epochs or self._seconds() > self.budget.seconds:
            return len(self.curve) > 0
        losses = [point.held_back_loss for point in self.curve]
        return len(losses) > 2 and min(losses[-2:]) > min(losses[:-2]) - _MIN_GAIN  # noqa: PLR2004 - two rounds

    def run_round(self, data: TrainingSequences, on_part: OnPart) -> float:
        """Train on all sequences once or more, in random order, and return the mean loss."""
        self.network.train()
        order = torch.cat([torch.randperm(len(data.numbers)) for _ in range(self._passes)])
        total = 0.0
        for batch in range(self._batches):
            chosen = order[batch * len(order) // self._batches : (batch + 1) * len(order) // self._batches]
            loss = _loss(self.network, data, chosen)
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self._optimizer.step()
            self._schedule.step()
            total += loss.item()
            on_part(len(self.curve) + 1, (batch + 1) / self._batches)
        return total / self._batches

    def record(self, loss: float, held_back: float, top1: float, top5: float) -> EpochResult:
        best = min((point.held_back_loss for point in self.curve), default=math.inf)
        if held_back < best:
            self.best = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        point = EpochResult(len(self.curve) + 1, loss, held_back, top1, top5, self._seconds())
        self.curve.append(point)
        return point

    def save(self) -> None:
        draft = self._checkpoint.with_suffix(".aside")
        torch.save(
            {
                "network": self.network.state_dict(),
                "optimizer": self._optimizer.state_dict(),
                "schedule": self._schedule.state_dict(),
                "best": self.best,
                "curve": [list(_values(point)) for point in self.curve],
            },
            draft,
        )
        draft.replace(self._checkpoint)

    def resume(self) -> None:
        """Resume a killed training from its checkpoint, if there is one."""
        try:
            state = torch.load(self._checkpoint, weights_only=True)
            self.network.load_state_dict(state["network"])
            self._optimizer.load_state_dict(state["optimizer"])
            self._schedule.load_state_dict(state["schedule"])
            self.best = state["best"]
            self.curve = [EpochResult(*values) for values in state["curve"]]
            self._began -= self.curve[-1].seconds
        except FileNotFoundError:
            pass

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def _values(point: EpochResult) -> tuple[float, ...]:
    return (point.epoch, point.learned_loss, point.held_back_loss, point.top1, point.top5, point.seconds)


def _set_initial_bias(network: Network, targets: Tensor) -> None:
    """Set the bias so that each number starts with its frequency as probability. This saves several rounds."""
    counts = torch.bincount(targets[targets != PADDING], minlength=network.head.out_features).float() + 0.1
    with torch.no_grad():
        network.head.bias.copy_(torch.log(counts / counts.sum()))
        network.head.weight.mul_(0.5)


def _loss(network: Network, data: TrainingSequences, chosen: Tensor) -> Tensor:
    scores = network(data.numbers[chosen], data.features[chosen])
    return nn.functional.cross_entropy(scores.flatten(0, 1), data.targets[chosen].flatten(), ignore_index=PADDING)


def _evaluate(network: Network, held_out: TrainingSequences) -> tuple[float, float, float]:
    """Return loss, top-1 and top-5 on held-back sessions. Buckets and ends do not count as files."""
    network.eval()
    loss = first = few = number = 0.0
    with torch.no_grad():
        for begin in range(0, min(len(held_out.numbers), _MAX_TRIALS // SEQUENCE_STEPS), _BATCH):
            chosen = torch.arange(begin, min(begin + _BATCH, len(held_out.numbers)))
            scores = network(held_out.numbers[chosen], held_out.features[chosen]).flatten(0, 1)
            targets = held_out.targets[chosen].flatten()
            is_step = targets != PADDING
            scores, targets = scores[is_step], targets[is_step]
            loss += float(nn.functional.cross_entropy(scores, targets, reduction="sum"))
            files = targets != END
            best = scores[files, FIRST_STEP:].topk(min(_TOP, scores.shape[1] - FIRST_STEP)).indices + FIRST_STEP
            hits = best == targets[files][:, None]
            first += float(hits[:, 0].sum())
            few += float(hits.any(dim=1).sum())
            number += float(files.sum())
    return loss / max(number, 1.0), first / max(number, 1.0), few / max(number, 1.0)
