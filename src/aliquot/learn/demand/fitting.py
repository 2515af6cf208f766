"""The networks in torch and their training: rounds over windows of all series until the held-back loss stops falling.

A checkpoint after each round lets a killed training resume. Only this module imports torch, and only a process that
trains imports this module.
"""

import io
import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn

from aliquot.learn.demand.features import TrainingWindows
from aliquot.learn.demand.networks import INPUT, OUTPUT, WINDOW
from aliquot.learn.registry import EpochResult

HIDDEN = 24
BATCH = 128
RATE = 1e-2
PATIENCE = 3  # rounds without a gain after which a training ends
RIDGE = 1.0  # of the squares of weights
OPSET = 17
OnRound = Callable[[EpochResult], None]


class FittingBudget(Struct, frozen=True):
    """The limits of a training."""

    epochs: int
    seconds: float
    threads: int
    seed: int = 0


class _Tensors:
    """Training windows as tensors."""

    def __init__(self, windows: TrainingWindows) -> None:
        self.inputs = torch.tensor(windows.inputs, dtype=torch.float32).reshape(-1, WINDOW)
        self.targets = torch.tensor(windows.targets, dtype=torch.float32).reshape(-1, windows.horizons)


class _Encoded(nn.Module):
    """A linear forecast from the window, which begins with ridge regression, plus what an encoder adds."""

    def __init__(self, horizons: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(WINDOW, horizons)
        self.head = nn.Linear(width, horizons)
        with torch.no_grad():
            self.head.weight.mul_(0.1)
            self.head.bias.zero_()

    def forward(self, window: Tensor) -> Tensor:
        forecast: Tensor = self.linear(window) + self.head(self.encode(window))
        return forecast

    def begin_linear(self, data: _Tensors) -> None:
        """Begin with the last value and what ridge regression on the data adds to it."""
        with torch.no_grad():
            for place in range(data.targets.shape[1]):
                known = ~data.targets[:, place].isnan()
                inputs = data.inputs[known]
                targets = data.targets[known, place] - inputs[:, -1]
                given = torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1)
                squares = given.T @ given + RIDGE * torch.eye(WINDOW + 1)
                solved = torch.linalg.solve(squares, given.T @ targets)
                self.linear.weight[place] = solved[:-1]
                self.linear.weight[place, -1] += 1
                self.linear.bias[place] = solved[-1]

    def encode(self, window: Tensor) -> Tensor:
        raise NotImplementedError


class _Recurrent(_Encoded):
    """A recurrent network over the window."""

    def __init__(self, horizons: int, kind: type[nn.GRU] | type[nn.LSTM]) -> None:
        super().__init__(horizons, HIDDEN)
        self.encoder = kind(1, HIDDEN, batch_first=True)

    def encode(self, window: Tensor) -> Tensor:
        outputs, _ = self.encoder(window.unsqueeze(-1))
        last: Tensor = outputs[:, -1]
        return last


class _Transformer(_Encoded):
    """One layer of self-attention with learned positions. The last position forecasts."""

    def __init__(self, horizons: int) -> None:
        super().__init__(horizons, HIDDEN)
        self.embedding = nn.Linear(1, HIDDEN)
        self.positions = nn.Parameter(0.02 * torch.randn(WINDOW, HIDDEN))
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.inner = nn.Sequential(nn.Linear(HIDDEN, 2 * HIDDEN), nn.ReLU(), nn.Linear(2 * HIDDEN, HIDDEN))
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))

    def encode(self, window: Tensor) -> Tensor:
        steps = self.embedding(window.unsqueeze(-1)) + self.positions
        query = self.query(steps[:, -1:])
        weights = torch.softmax(query @ self.key(steps).transpose(1, 2) / math.sqrt(HIDDEN), dim=-1)
        mixed = self.norms[0](steps[:, -1:] + weights @ self.value(steps))
        last: Tensor = self.norms[1](mixed + self.inner(mixed))[:, 0]
        return last


NETWORKS: dict[str, Callable[[int], _Encoded]] = {
    "gru": lambda horizons: _Recurrent(horizons, nn.GRU),
    "lstm": lambda horizons: _Recurrent(horizons, nn.LSTM),
    "transformer": _Transformer,
}


def fit_network(
    name: str,
    learned_windows: TrainingWindows,
    held_back_windows: TrainingWindows,
    budget: FittingBudget,
    checkpoint: Path,
    on_round: OnRound,
) -> tuple[bytes, list[EpochResult]]:
    """Train a network, and return its ONNX file with the weights of the best round, and the learning curve."""
    torch.set_num_threads(budget.threads)
    torch.manual_seed(budget.seed)
    learned, held_back = _Tensors(learned_windows), _Tensors(held_back_windows)
    run = _NetworkTraining(name, learned, budget, checkpoint)
    run.resume()
    while not run.is_over():
        loss = run.run_round(learned)
        on_round(run.record(loss, run.loss_on(held_back)))
        run.save()
    run.network.load_state_dict(run.best)
    return _export(run.network), run.curve


class _NetworkTraining:
    """The state of a training: optimizer, learning curve and best weights."""

    def __init__(self, name: str, learned: _Tensors, budget: FittingBudget, checkpoint: Path) -> None:
        self.network = NETWORKS[name](learned.targets.shape[1])
        self.network.begin_linear(learned)
        self.curve: list[EpochResult] = []
        self.best: Mapping[str, Tensor] = {}
        self._name = name
        self._budget = budget
        self._checkpoint = checkpoint
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=RATE)
        self._began = time.monotonic()

    def is_over(self) -> bool:
        """Return whether all rounds are done, the time is up, or the last rounds improved nothing."""
        if len(self.curve) >= self._budget.epochs or self._seconds() > self._budget.seconds:
            return len(self.curve) > 0
        losses = [point.held_back_loss for point in self.curve]
        return len(losses) > PATIENCE and min(losses[-PATIENCE:]) >= min(losses[:-PATIENCE])

    def run_round(self, data: _Tensors) -> float:
        self.network.train()
        order, total = torch.randperm(len(data.inputs)), 0.0
        for chosen in torch.split(order, BATCH):
            loss = _loss(self.network(data.inputs[chosen]), data.targets[chosen])
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self._optimizer.step()
            total += loss.item() * len(chosen)
        return total / max(1, len(order))

    def loss_on(self, data: _Tensors) -> float:
        self.network.eval()
        with torch.no_grad():
            return _loss(self.network(data.inputs), data.targets).item()

    def record(self, loss: float, held_back: float) -> EpochResult:
        if held_back < min((point.held_back_loss for point in self.curve), default=math.inf):
            self.best = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        point = EpochResult(len(self.curve) + 1, loss, held_back, 0.0, 0.0, self._seconds(), self._name)
        self.curve.append(point)
        return point

    def save(self) -> None:
        draft = self._checkpoint.with_suffix(".aside")
        state = {
            "network": self.network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "best": self.best,
            "curve": [[point.epoch, point.learned_loss, point.held_back_loss, point.seconds] for point in self.curve],
        }
        torch.save(state, draft)
        draft.replace(self._checkpoint)

    def resume(self) -> None:
        """Resume a killed training from its checkpoint, if there is one."""
        try:
            state = torch.load(self._checkpoint, weights_only=True)
        except FileNotFoundError:
            return
        self.network.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.best = state["best"]
        self.curve = [
            EpochResult(epoch, learned, held_back, 0.0, 0.0, seconds, self._name)
            for epoch, learned, held_back, seconds in state["curve"]
        ]
        self._began -= self.curve[-1].seconds

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def _loss(forecast: Tensor, targets: Tensor) -> Tensor:
    """Return the mean absolute error in asinh, whose minimum is the median."""
    known = ~targets.isnan()
    return (forecast[known] - targets[known]).abs().mean() if known.any() else (forecast * 0).sum()


def _export(network: nn.Module) -> bytes:
    """Return the network as an ONNX file."""
    file = io.BytesIO()
    into: Any = file
    network.eval()
    with warnings.catch_warnings():  # the exporter that needs no further library is called old
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(1, WINDOW),),
            into,
            dynamo=False,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_axes={INPUT: {0: "batch"}, OUTPUT: {0: "batch"}},
            opset_version=OPSET,
        )
    return file.getvalue()
