"""The peers that a run measures, and what has to be downloaded for them."""

from collections.abc import Sequence

from aliquot.core.errors import InputError
from aliquot_bench.environments import cache_folder, is_prepared
from aliquot_bench.latency.peers import PEERS, TORCH, PeerSystem

NONE = "none"
TORCH_FOLDER = "torch"  # for first calls of functions that import torch
# Megabytes of disk that each environment takes. What is downloaded is some two thirds of it.
INSTALLED_MB = {"bentoml": 162, "kserve": 434, "litserve": 922, "pytriton": 344, "ray": 465, TORCH_FOLDER: 878}


def check_names(names: Sequence[str]) -> None:
    """Raise `InputError` for a peer that is not known."""
    for name in names:
        if name not in INSTALLED_MB:
            raise InputError(f"--peers: there is no '{name}'; it takes {NONE}, or some of {', '.join(INSTALLED_MB)}")


def chosen_peers(names: Sequence[str] | None) -> list[PeerSystem]:
    """Return the systems that are measured. Without names these are all."""
    return [peer for peer in PEERS if names is None or peer.folder in names]


def downloads(names: Sequence[str] | None) -> dict[str, int]:
    """Return the megabytes that each environment will take which is not there yet."""
    needed = {peer.folder: (peer.requirements, peer.interpreter) for peer in chosen_peers(names)}
    missing = [folder for folder, wanted in needed.items() if not is_prepared(cache_folder() / folder, *wanted)]
    if (names is None or TORCH_FOLDER in names) and not is_prepared(cache_folder() / TORCH_FOLDER, (TORCH,)):
        missing.append(TORCH_FOLDER)
    return {folder: INSTALLED_MB[folder] for folder in missing}
