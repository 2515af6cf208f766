"""A whole training: the split by time, the choice, and that only a better version serves."""

import random

import pytest
from flows import chain, many
from msgspec.structs import replace

from aliquot.learn.choosing import best_of, choose
from aliquot.learn.markov import MarkovPredictor, PopularPredictor
from aliquot.learn.parts import PREDICTORS, open_parts
from aliquot.learn.predictor import Guess, NullPredictor, SequentialPredictor
from aliquot.learn.registry import Manifest, ModelRegistry
from aliquot.learn.scoring import Score, held_out_steps
from aliquot.learn.settings import PREDICTORS as NAMES
from aliquot.learn.settings import LearnSettings
from aliquot.learn.steps import AccessStep, begin, call
from aliquot.learn.tables import count
from aliquot.learn.training import DatedSession, TooFewSessionsError, learn, split, train

PLAIN = LearnSettings(with_lstm=False)


def quiet(_):
    pass


@pytest.fixture
def registry(tmp_path):
    return ModelRegistry(tmp_path / "models", Manifest)


def model_of(registry):
    manifest = registry.manifest(registry.serving().version)
    parts = open_parts(manifest, registry.read(manifest))
    return parts.model(manifest.winner, manifest)


def test_what_is_held_back_is_newer_than_what_is_learned():
    dated = [DatedSession(float(when), chain(2)) for when in random.Random(2).sample(range(50), 50)]
    learned, held_back = split(dated, 8)
    assert (len(learned), len(held_back)) == (40, 10)
    assert max(one.began_s for one in learned) < min(one.began_s for one in held_back)


def test_too_little_says_how_much_there_must_be(registry):
    with pytest.raises(TooFewSessionsError, match=r"there are 3 sessions .* it takes 8"):
        train(many(3), registry, PLAIN, quiet)
    assert registry.versions() == []


def test_the_first_version_serves_and_names_the_whole_workflow(registry):
    told = []
    manifest = train(many(30), registry, PLAIN, told.append)
    assert manifest.accepted
    assert manifest.winner == "markov2"
    assert manifest.scores["markov2"].worth > manifest.scores["popular"].worth
    assert registry.serving().version == 1
    assert [one.done for one in told] == sorted(one.done for one in told)
    likely = model_of(registry).likely([begin("user1")])
    sure = {guess.file for guess in likely if guess.probability > 0.75}
    assert sure == {"data/config.json", "data/user1/base.ckpt", *(f"data/user1/shard-{n}" for n in range(4))}


def test_one_who_strays_now_and_then_is_foreseen_all_the_same(registry):
    sessions = many(40, users=4)
    for number in (6, 18):  # of user2's ten, long before the newest
        sessions[number].steps[-1] = AccessStep("data/user1/base.ckpt", 2**30)
    train(sessions, registry, PLAIN, quiet)
    likely = dict(model_of(registry).likely([begin("user2")]))
    assert likely["data/user2/base.ckpt"] > 0.75
    assert likely.get("data/user1/base.ckpt", 0.0) < 0.4


def test_a_version_that_is_not_better_is_kept_and_does_not_serve(registry):
    train(many(40), registry, PLAIN, quiet)
    again = train(many(40), registry, PLAIN, quiet)
    assert not again.accepted
    assert "not better" in again.why
    assert registry.serving().version == 1
    assert [one.version for one in registry.versions()] == [1, 2]


def test_a_version_that_knows_what_changed_takes_over(registry):
    train(many(30), registry, PLAIN, quiet)
    changed = [DatedSession(100.0 + number, chain(8, "new")) for number in range(60)]
    second = train([*many(30), *changed], registry, PLAIN, quiet)
    assert second.accepted, second.why
    assert registry.serving().version == 2


def test_a_call_that_only_the_new_version_knows_tells_which_file_follows(registry):
    """After `a` a new function is often called, and `c` is opened. Without the call it is `b`, in fewer sessions."""
    train([DatedSession(float(n), [AccessStep("a"), AccessStep("old")]) for n in range(20)], registry, PLAIN, quiet)
    called, plain = [AccessStep("a"), call("ann", "new"), AccessStep("c")], [AccessStep("a"), AccessStep("b")]
    sessions = [DatedSession(100.0 + n, plain if n % 5 < 2 else called) for n in range(60)]
    second = train(sessions, registry, PLAIN, quiet)
    assert second.accepted
    assert " 83.3% against version 1's" in second.why  # `b` is the second guess, in a third of the trials


def test_a_pinned_version_stays_whatever_is_learned(registry):
    train(many(30), registry, PLAIN, quiet)
    registry.serve(1, pinned=True)
    changed = [DatedSession(100.0 + number, chain(8, "new")) for number in range(60)]
    assert train([*many(30), *changed], registry, PLAIN, quiet).accepted
    assert registry.serving().version == 1


def test_where_nothing_comes_again_nothing_serves(registry):
    sessions = [DatedSession(float(s), [AccessStep(f"data/{s}-{n}") for n in range(5)]) for s in range(20)]
    manifest = train(sessions, registry, PLAIN, quiet)
    assert manifest.winner == "none"
    assert registry.serving().version == 0


class Unsure(SequentialPredictor):
    """A fake network that gives one file a low probability."""

    name = "lstm"

    def __init__(self, file):
        self._file = file

    def predict(self, history, top=32):
        return [Guess(self._file, 0.3)]


class Oracle(SequentialPredictor):
    """A fake network that is better or worse than the Markov predictors."""

    name = "lstm"

    def __init__(self, file):
        self._file = file

    def predict(self, history, top=32):
        return [Guess(self._file, 0.9)]


@pytest.mark.parametrize("wins", [True, False])
def test_a_network_that_loses_to_markov_is_only_blended(wins):
    tables = count([[AccessStep(f"a{number}"), AccessStep("usual")] for number in range(30)])
    held_out = held_out_steps(
        [[AccessStep(f"b{number}"), AccessStep("new" if wins else "usual")] for number in range(20)]
    )
    singles = {
        "none": NullPredictor(),
        "popular": PopularPredictor(tables),
        "markov1": MarkovPredictor(tables, 1),
        "markov2": MarkovPredictor(tables, 2),
        "lstm": Oracle("new"),
    }
    choice = choose(singles, held_out, frozenset())
    assert choice.winner == ("lstm" if wins else "popular")
    assert choice.weights["lstm" if wins else "markov2"] > 0.99


def test_a_blend_serves_that_is_better_than_a_network_and_than_counts_alone():
    """A network that knows half of the files is below the counts, and both together are better than either."""
    tables = count([[AccessStep("a"), AccessStep("b")]] * 6)
    sessions = [[AccessStep("a"), AccessStep("b")]] * 6 + [[AccessStep("x"), AccessStep("y")]] * 4
    singles = {
        "none": NullPredictor(),
        "markov1": MarkovPredictor(tables, 1),
        "markov2": MarkovPredictor(tables, 2),
        "lstm": Unsure("y"),
    }
    choice = choose(singles, held_out_steps(sessions), frozenset())
    assert choice.scores["lstm"].top1 < choice.scores["markov2"].top1
    assert choice.winner == "blend"
    assert choice.scores["blend"].top5 == 1.0


def test_the_choice_is_the_least_below_the_best_in_both_measures():
    one_sided, even = Score(100, 0.50, 0.60), Score(100, 0.44, 0.70)
    best = Score(100, 0.40, 0.75)
    assert best_of({"none": Score(), "markov1": one_sided, "markov2": even, "lstm": best}) == "markov2"


def test_the_trial_has_counts_as_fresh_as_those_that_serve(tmp_path):
    """Files changed within the held-back sessions. Counts that know them decide, as they will when they serve."""
    old = [DatedSession(float(n), chain(4, "old")) for n in range(80)]
    new = [DatedSession(100.0 + n, chain(4, "new")) for n in range(20)]
    result = learn(old, new, tmp_path, PLAIN, quiet)
    assert result.choice.scores["markov1"].top1 == 1.0
    assert result.manifest.held_back == 20


def test_of_equals_the_simpler_one_wins():
    same = Score(10, 0.5, 0.7)
    assert best_of({"none": Score(), "popular": same, "markov1": same, "lstm": same}) == "popular"
    better = replace(same, top1=0.6)
    assert best_of({"none": Score(), "popular": same, "markov1": same, "lstm": better}) == "lstm"


def test_one_table_has_every_predictor():
    assert tuple(PREDICTORS) == NAMES
