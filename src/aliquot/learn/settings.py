"""The operator's settings for learning."""

from msgspec import Struct

AUTO = "auto"
PREDICTORS = ("none", "popular", "markov1", "markov2", "lstm", "blend")


class LearnSettings(Struct, frozen=True):
    """The settings of the option `--learning`, whose names are the field names."""

    predictor: str = AUTO  # "auto": the best on held-back sessions; else always this one
    least_sessions: int = 8  # sessions in the log before the first training
    new_accesses: int = 2_000  # accesses since the last training that start another one
    new_share: float = 0.1  # and at least this share of the log
    look_every_s: float = 30.0  # how often the agent checks for new accesses
    keep_versions: int = 10
    threads: int = 1  # used by the training
    epochs: int = 12  # maximum number of rounds of the network; it stops earlier without improvement
    most_steps: int = 200_000  # the network is trained on the newest steps of the log
    most_minutes: float = 30.0  # maximum duration of the network's training
    niceness: int = 19  # of the training process
    when_idle: bool = True  # train on idle processors only; not if the operator waits for it
    with_lstm: bool = True  # train networks if torch is installed
    least_rows: int = 500  # steps with calls before the first training of forecasts
    drift_rows: int = 500  # forecasts in a window that is compared with the promotion
    drift_windows: int = 3  # windows in a row that must be worse before forecasts are trained again
    drift_loss: float = 1.2  # times the loss at the promotion that is worse
