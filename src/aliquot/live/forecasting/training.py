"""The training process of forecasts: read the profiles, print progress to stdout as JSON lines, and add a version.

It is started as `python -m aliquot.live.forecasting.training DATA REGISTRY SETTINGS`, with a low priority. It may be
killed at any moment: the next training goes on with the stage that was not done.
"""

import sys
from pathlib import Path

import msgspec

from aliquot.learn.demand.evaluation import CallRow
from aliquot.learn.demand.training import DemandLearnSettings, TooFewRowsError, train_demand
from aliquot.learn.demand.versions import DemandCard
from aliquot.learn.progress import TrainingEnded, lower_priority, print_line
from aliquot.learn.registry import ModelRegistry
from aliquot.live.forecasting.served import recorded_calls

FAILED = 1


def run(data: Path, registry: Path, settings: DemandLearnSettings) -> TrainingEnded:
    """Train a version from the profiles, and print the progress."""
    try:
        rows = [CallRow(row.tenant, row.function, float(row.t_s), row.at_once) for row in recorded_calls(data, None)]
        card = train_demand(rows, ModelRegistry(registry, DemandCard), settings, print_line)
    except TooFewRowsError as error:
        return TrainingEnded(error=str(error))
    except BlockingIOError:
        return TrainingEnded(error="another training is running")
    except OSError as error:
        return TrainingEnded(error=f"{type(error).__name__}: {error}")
    return TrainingEnded(card.version)


if __name__ == "__main__":
    chosen = msgspec.json.decode(sys.argv[3], type=DemandLearnSettings)
    lower_priority(chosen)
    ended = run(Path(sys.argv[1]), Path(sys.argv[2]), chosen)
    print_line(ended)
    sys.exit(FAILED if ended.error else 0)
