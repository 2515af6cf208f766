"""What an operator may set about learning."""

from msgspec import Struct

AUTO = "auto"
PREDICTORS = ("none", "popular", "markov1", "markov2", "lstm", "blend")


class LearnSettings(Struct, frozen=True):
    predictor: str = AUTO  # the best on held-back sessions, or always this one
    least_sessions: int = 8  # that must be there before anything is learned
    new_accesses: int = 2_000  # since the last training, before another
    new_share: float = 0.1  # and at least this part of all that is there: a long log is not read again for a few
    look_every_s: float = 30.0  # how often the agent looks whether there are enough
    keep_versions: int = 10
    threads: int = 1  # of training
    epochs: int = 12  # of the network, at most; it stops when held-back sessions are predicted no better
    most_steps: int = 200_000  # of the log's newest that the network is trained on
    most_minutes: float = 30.0  # of the network's training
    niceness: int = 19  # of training
    when_idle: bool = True  # it takes only what nobody else wants; where someone waits for it, it does not
    with_lstm: bool = True  # where torch is installed
