"""The predictors without a network: their guesses, and that their values are probabilities."""

import random

import pytest
from flows import chain, workflow
from hypothesis import given
from hypothesis import strategies as st

from aliquot.learn.blend import BlendPredictor, fit_weights
from aliquot.learn.calibration import Calibration, calibrate
from aliquot.learn.later import LaterPredictor, LaterTables, count_later
from aliquot.learn.markov import MarkovPredictor, PopularPredictor
from aliquot.learn.model import PredictionModel
from aliquot.learn.predictor import Guess, NullPredictor
from aliquot.learn.rollout import chain as follow
from aliquot.learn.rollout import roll_out
from aliquot.learn.scoring import HeldOutStep, held_out_steps, score
from aliquot.learn.steps import AccessStep, begin, begin_marks, call, call_marks
from aliquot.learn.tables import Tables, count

files = st.integers(0, 8).map(lambda number: AccessStep(f"data/{number}", number))
sessions_of = st.lists(st.lists(files, min_size=1, max_size=12), min_size=1, max_size=8)


def all_of(tables):
    return [NullPredictor(), PopularPredictor(tables), MarkovPredictor(tables, 1), MarkovPredictor(tables, 2)]


@given(sessions_of, st.lists(files, max_size=4))
def test_probabilities_are_such_and_the_same_each_time(sessions, history):
    for first, second in zip(all_of(count(sessions)), all_of(count(sessions)), strict=True):
        guesses = first.predict(history)
        assert guesses == second.predict(history)
        assert all(0 < guess.probability <= 1 for guess in guesses)
        assert sum(guess.probability for guess in guesses) <= 1 + 1e-9
        assert [guess.probability for guess in guesses] == sorted((g.probability for g in guesses), reverse=True)
        assert len({guess.file for guess in guesses}) == len(guesses)


@given(sessions_of)
def test_tables_and_reach_come_back_from_bytes_as_they_were(sessions):
    tables, reach = count(sessions), count_later(sessions)
    assert Tables.from_bytes(tables.to_bytes()) == tables
    assert LaterTables.from_bytes(reach.to_bytes()) == reach


@given(sessions_of, st.lists(files, min_size=1, max_size=4))
def test_a_likely_set_names_each_file_once_with_a_probability(sessions, history):
    tables = count(sessions)
    known = {step.file: step for step in tables.steps}
    told = roll_out(
        MarkovPredictor(tables, 2), LaterPredictor(count_later(sessions)), history, lambda file: known[file]
    )
    assert len({guess.file for guess in told}) == len(told)
    assert all(0 < guess.probability <= 1 for guess in told)


def test_what_always_came_next_is_above_the_threshold_from_the_fourth_time_on():
    for times, expected in ((1, 1 / 2), (3, 3 / 4), (4, 4 / 5), (40, 40 / 41)):
        tables = count(
            [[AccessStep("a"), AccessStep("b")] for _ in range(times)] + [[AccessStep(f"other-{n}") for n in range(50)]]
        )
        best = MarkovPredictor(tables, 1).predict([AccessStep("a")])[0]
        assert best.file == "b"
        assert best.probability == pytest.approx(expected, abs=0.03)


def test_two_steps_tell_apart_what_one_does_not():
    tables = count(
        [[AccessStep("a"), AccessStep("x"), AccessStep("1")], [AccessStep("b"), AccessStep("x"), AccessStep("2")]] * 5
    )
    assert MarkovPredictor(tables, 2).predict([AccessStep("a"), AccessStep("x")])[0].file == "1"
    assert MarkovPredictor(tables, 2).predict([AccessStep("b"), AccessStep("x")])[0].file == "2"
    one = {
        guess.file: guess.probability
        for guess in MarkovPredictor(tables, 1).predict([AccessStep("b"), AccessStep("x")])
    }
    assert one["1"] == pytest.approx(one["2"])


def test_the_same_file_under_another_call_leads_elsewhere():
    sessions = [
        [call(user, "f"), AccessStep("a"), AccessStep("b"), AccessStep("x"), AccessStep(user)]
        for user in ("ann", "bob")
    ] * 5
    tables = count(sessions)
    for user in ("ann", "bob"):
        history = [call(user, "f"), AccessStep("a"), AccessStep("b"), AccessStep("x")]
        assert MarkovPredictor(tables, 2).predict(history)[0].file == user
        assert MarkovPredictor(tables, 2).predict(history)[0].probability > 0.75


def test_a_step_never_seen_falls_back_to_what_is_popular():
    tables = count([[AccessStep("often")] * 5 + [AccessStep("seldom")]])
    for predictor in (MarkovPredictor(tables, 1), MarkovPredictor(tables, 2)):
        assert [guess.file for guess in predictor.predict([AccessStep("new")])] == ["often", "seldom"]
        assert predictor.predict([])[0].file == "often"


def test_a_session_that_ends_makes_every_next_file_less_likely():
    tables = count([[AccessStep("a"), AccessStep("b")]] * 5 + [[AccessStep("a")]] * 5)
    assert MarkovPredictor(tables, 1).predict([AccessStep("a")])[0].probability < 0.6


def test_the_roll_out_follows_the_whole_chain():
    tables = count([chain()] * 10)
    known = {step.file: step for step in tables.steps}
    told = follow(MarkovPredictor(tables, 1), [AccessStep("data/file-0")], lambda file: known[file])
    likely = [file for file, probability in told.items() if probability > 0.5]
    assert likely == [f"data/file-{number}" for number in range(1, 6)]


def test_marks_are_followed_and_never_told():
    session = [begin("ann"), call("ann", "f"), AccessStep("data/a"), call("ann", "g"), AccessStep("data/b")]
    tables = count([session] * 10)
    known = {step.file: step for step in tables.steps}
    told = roll_out(MarkovPredictor(tables, 1), None, [begin("ann")], lambda file: known[file])
    assert [guess.file for guess in told] == ["data/a", "data/b"]
    assert PopularPredictor(tables).predict([])[0].file.startswith("data/")


def test_files_that_come_in_any_order_are_told_although_none_is_likely_to_be_next():
    generator = random.Random(3)
    sessions = [workflow("ann", generator, shards=12) for _ in range(8)]
    tables = count(sessions)
    known = {step.file: step for step in tables.steps}
    history = [begin("ann"), call("ann", "train"), AccessStep("data/config.json", 100)]
    assert MarkovPredictor(tables, 2).predict(history)[0].probability < 0.4
    told = roll_out(
        MarkovPredictor(tables, 2), LaterPredictor(count_later(sessions)), history, lambda file: known[file]
    )
    sure = [guess.file for guess in told if guess.probability > 0.75]
    assert sorted(sure) == sorted({step.file for step in sessions[0][3:]})
    assert sure[-1] == "data/ann/base.ckpt"  # the last to be opened


def test_of_files_drawn_by_chance_none_is_promised():
    generator = random.Random(4)
    sessions = [
        [AccessStep("start"), *(AccessStep(f"data/{n}") for n in generator.sample(range(400), 16))] for _ in range(12)
    ]
    told = LaterPredictor(count_later(sessions)).predict_later([AccessStep("start")])
    assert all(coming.probability < 0.75 for coming in told)


def test_users_of_one_function_are_told_apart_by_who_they_are():
    generator = random.Random(5)
    sessions = [workflow(f"user{number % 4}", generator) for number in range(24)]
    outlook = LaterPredictor(count_later(sessions))
    for user in range(4):
        told = {coming.file for coming in outlook.predict_later([begin(f"user{user}")]) if coming.probability > 0.75}
        assert f"data/user{user}/base.ckpt" in told
        assert not any(f"user{other}/" in file for other in range(4) if other != user for file in told)


def of_user(user, generator):
    """Return a session of a user who reads the shared config and then their own data in random order."""
    _, _, *files = workflow(user, generator)
    return [*begin_marks("lab", user), *call_marks("lab", "train", user), *files]


@pytest.mark.parametrize("moment", ["begin", "call", "open"])
@pytest.mark.parametrize("order", [1, 2])
def test_users_of_one_tenant_are_told_apart_at_every_moment(moment, order):
    generator = random.Random(6)
    sessions = [of_user(f"user{number % 3}", generator) for number in range(36)]
    tables = count(sessions)
    known = {step.file: step for step in tables.steps}
    model = PredictionModel(
        MarkovPredictor(tables, order),
        LaterPredictor(count_later(sessions)),
        lambda file: known.get(file, AccessStep(file)),
    )
    place = {"begin": 2, "call": 4, "open": 5}[moment]
    for user in range(3):
        told = model.likely(of_user(f"user{user}", generator)[:place])
        sure = {guess.file for guess in told if guess.probability > 0.75} - {"data/config.json"}
        assert sure == {f"data/user{user}/{name}" for name in (*(f"shard-{n}" for n in range(4)), "base.ckpt")}
    new = {guess.file for guess in model.likely(of_user("new", generator)[:place]) if guess.probability > 0.75}
    assert new == (set() if moment == "open" else {"data/config.json"})


def test_a_user_seen_once_has_what_all_open_all_the_same():
    generator = random.Random(7)
    sessions = [of_user(f"user{number % 3}", generator) for number in range(36)] + [of_user("new", generator)]
    (config,) = [
        coming.probability
        for coming in LaterPredictor(count_later(sessions)).predict_later(begin_marks("lab", "new"))
        if coming.file == "data/config.json"
    ]
    assert config > 0.75


def test_a_blend_weighs_by_what_held_back_sessions_show():
    held_out = [HeldOutStep([AccessStep("a")], "right")] * 10
    good = [[Guess("right", 0.9)]] * 10
    bad = [[Guess("wrong", 0.9)]] * 10
    weights = fit_weights([bad, good], held_out)
    assert weights[1] > 0.99
    tables = count([[AccessStep("a"), AccessStep("right")]] * 4)
    assert (
        BlendPredictor([PopularPredictor(tables), MarkovPredictor(tables, 1)], weights)
        .predict([AccessStep("a")])[0]
        .file
        == "right"
    )


def test_calibration_lowers_what_was_said_too_boldly():
    answers = [(0.9, number % 2 == 0) for number in range(200)] + [(0.2, number % 5 == 0) for number in range(200)]
    made = calibrate(answers)
    assert made(0.9) == pytest.approx(0.5, abs=0.05)
    assert made(0.2) == pytest.approx(0.2, abs=0.05)


def test_few_answers_leave_what_was_said_about_as_it_was():
    made = calibrate([(0.8, True), (0.8, True), (0.98, True), (0.98, True), (0.98, True)])
    assert made(0.8) == pytest.approx(0.84, abs=0.05)
    assert calibrate([(0.8, True), (0.8, False)])(0.8) == pytest.approx(0.74, abs=0.01)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60), st.floats(0, 1), st.floats(0, 1))
def test_calibration_keeps_the_order_and_gives_probabilities(answers, one, other):
    made = calibrate(answers)
    low, high = sorted((one, other))
    assert 0 <= made(low) <= made(high) + 1e-9
    assert made(high) <= 1 + 1e-9


def test_without_a_calibration_what_is_said_is_taken_as_it_is():
    assert Calibration()(0.3) == 0.3


def test_scores_count_what_was_named_and_pass_over_marks():
    tables = count([[begin("ann"), call("ann", "f"), AccessStep("a"), AccessStep("b")]] * 9)
    held_out = held_out_steps([[begin("ann"), call("ann", "f"), AccessStep("a"), AccessStep("b")]])
    assert [place.file for place in held_out] == ["a", "b"]
    found = score(MarkovPredictor(tables, 1), held_out, frozenset({"begin:ann", "call:ann/f"}))
    assert (found.places, found.top1, found.top5, found.sure, found.right) == (2, 1.0, 1.0, 2, 1.0)
    assert score(NullPredictor(), held_out).worth == 0


def test_a_mark_between_two_files_does_not_hide_which_follows_which():
    opens = [AccessStep(f"data/{number}") for number in range(6)]
    marked = [step for number, file in enumerate(opens) for step in (call("ann", f"f{number % 2}"), file)]
    plain, with_marks = MarkovPredictor(count([opens] * 5), 2), MarkovPredictor(count([marked] * 5), 2)
    for position in range(1, len(opens)):
        wanted = opens[position].file
        assert plain.predict(opens[:position])[0].file == wanted
        assert with_marks.predict(marked[: 2 * position])[0].file == wanted  # before the mark
        assert with_marks.predict(marked[: 2 * position + 1])[0].file == wanted  # after it


def test_marks_are_never_guessed():
    session = [begin("ann"), call("ann", "f"), AccessStep("data/a"), call("ann", "g"), AccessStep("data/b")]
    tables = count([session] * 10)
    for position in range(1, len(session)):
        guesses = MarkovPredictor(tables, 2).predict(session[:position])
        assert {guess.file for guess in guesses} <= {"data/a", "data/b"}


def test_answers_of_few_sessions_are_trusted_less_and_stay_in_order():
    answers = [(0.9, number % 10 > 0) for number in range(100)] + [(0.3, number % 10 < 3) for number in range(100)]
    sure, few, many = (calibrate(answers, sessions) for sessions in (None, 4, 400))
    assert sure(0.9) == pytest.approx(0.9)
    assert few(0.9) == pytest.approx(0.825, abs=0.01)
    assert sure(0.9) > many(0.9) > few(0.9)
    assert few(0.3) < few(0.9)
