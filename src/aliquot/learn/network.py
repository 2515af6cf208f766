"""The network in torch, for training alone: embedding 64 joined with size and operation, LSTM 128, LSTM 64, head.

Torch is imported here and in `fitting` alone, and they only where something is trained.
"""

from typing import Any

import torch
from torch import Tensor, nn

from aliquot.learn.vocabulary import FEATURES

EMBEDDING, FIRST, SECOND = 64, 128, 64


class Network(nn.Module):
    """Scores for every number of the vocabulary at every place; the softmax is in the loss, and in the file."""

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
        """The weights as numpy arrays, by torch's names."""
        return {name: value.detach().numpy() for name, value in self.state_dict().items()}
