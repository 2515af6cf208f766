"""The network gives the same result in torch, which trains it, and in onnxruntime, which runs it."""

from importlib.util import find_spec

import pytest
from flows import chain, many

from aliquot.learn import onnx_file
from aliquot.learn.lstm import LstmError, LstmPredictor
from aliquot.learn.steps import AccessStep
from aliquot.learn.vocabulary import FIRST_BUCKET, FIRST_STEP, MAX_STEPS, Vocabulary, choose_vocabulary, features

for needed in ("torch", "onnx", "onnxruntime"):
    if find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed: the network is not tried", allow_module_level=True)


@pytest.fixture(scope="module")
def fitting():
    """Import torch, which takes seconds, only where it is needed. Fewer batches are enough for such simple data."""
    from aliquot.learn import fitting

    fitting.torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_MIN_BATCHES", 40)
        yield fitting


@pytest.fixture(scope="module")
def budget(fitting):
    return fitting.TrainingBudget(epochs=2, seconds=60, threads=1)


@pytest.fixture(scope="module")
def network(fitting, budget, tmp_path_factory):
    """Return a network trained on a fixed chain, its vocabulary and its learning curve."""
    sessions = [chain() for _ in range(40)]
    vocabulary = choose_vocabulary(sessions)
    checkpoint = tmp_path_factory.mktemp("network") / "a.checkpoint"
    made, curve = fitting.fit(sessions, sessions[:4], vocabulary, budget, checkpoint, lambda _: None, lambda *_: None)
    assert not checkpoint.exists()
    return made, vocabulary, curve


@pytest.fixture(scope="module")
def lstm(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "lstm.onnx"
    onnx_file.write(network[0].arrays(), path)
    return LstmPredictor(path.read_bytes(), network[1])


def test_the_network_is_the_one_that_was_drawn(fitting):
    made = fitting.Network(1000)
    shapes = {name: tuple(value.shape) for name, value in made.state_dict().items()}
    assert shapes["embedding.weight"] == (1000, 64)
    assert shapes["first.weight_ih_l0"] == (4 * 128, 64 + 4)
    assert shapes["second.weight_ih_l0"] == (4 * 64, 128)
    assert shapes["head.weight"] == (1000, 64)


def test_it_learns_a_chain(network, lstm):
    for place in range(5):
        best = lstm.predict(chain()[: place + 1])[0]
        assert best.file == f"data/file-{place + 1}"
        assert best.probability > 0.9
    curve = network[2]
    assert [point.epoch for point in curve] == [1, 2]
    assert curve[-1].held_back_loss < 0.5
    assert curve[-1].top1 > 0.9


def test_onnxruntime_says_what_torch_says(network, lstm):
    import torch

    made, vocabulary, _ = network
    for length in (1, 3, 10):
        history = (chain() * 2)[:length]
        numbers = torch.tensor([[vocabulary.number(step.file) for step in history]])
        given = torch.tensor([[features(step) for step in history]])
        with torch.no_grad():
            expected = torch.softmax(made(numbers, given)[0, -1], dim=0)
        for guess in lstm.predict(history)[:5]:
            assert guess.probability == pytest.approx(float(expected[vocabulary.number(guess.file)]), abs=1e-5)


def test_many_at_once_are_as_one_by_one(lstm):
    histories = [chain()[:length] for length in (1, 4, 2, 4, 6)] + [[]]
    together = lstm.predict_many(histories)
    for history, guesses in zip(histories, together, strict=True):
        alone = lstm.predict(history)
        assert [guess.file for guess in guesses[:3]] == [guess.file for guess in alone[:3]]
        assert sum(guess.probability for guess in guesses) <= 1 + 1e-5
    assert together[-1] == []


def test_files_never_seen_share_buckets_and_are_never_guessed(lstm):
    vocabulary = lstm.vocabulary
    assert FIRST_BUCKET <= vocabulary.number("data/never-seen") < FIRST_STEP
    assert vocabulary.number("data/never-seen") == Vocabulary([]).number("data/never-seen")
    known = {step.file for step in vocabulary.steps}
    assert {guess.file for guess in lstm.predict([AccessStep("data/never-seen")])} <= known


def test_what_was_seen_once_is_in_a_bucket():
    vocabulary = choose_vocabulary([[AccessStep("once"), AccessStep("twice")], [AccessStep("twice")]])
    assert [step.file for step in vocabulary.steps] == ["twice"]


def test_the_largest_vocabulary_stays_below_five_megabytes(fitting, tmp_path):
    full = fitting.Network(len(Vocabulary([AccessStep(str(number)) for number in range(MAX_STEPS)])))
    onnx_file.write(full.arrays(), tmp_path / "full.onnx")
    assert (tmp_path / "full.onnx").stat().st_size < 5_000_000


def test_eight_bit_weights_name_the_same_file_in_fewer_bytes(network, tmp_path):
    made, vocabulary, _ = network
    onnx_file.write(made.arrays(), tmp_path / "whole.onnx")
    onnx_file.quantize(tmp_path / "whole.onnx", tmp_path / "int8.onnx")
    small = LstmPredictor((tmp_path / "int8.onnx").read_bytes(), vocabulary)
    assert small.predict(chain()[:3])[0].file == "data/file-3"
    assert (tmp_path / "int8.onnx").stat().st_size < 0.5 * (tmp_path / "whole.onnx").stat().st_size


def test_a_file_that_is_no_model_is_an_error_that_says_so():
    with pytest.raises(LstmError, match="cannot load the model"):
        LstmPredictor(b"not a model", Vocabulary([]))


def test_a_training_that_broke_off_goes_on_where_it_was(fitting, budget, tmp_path):
    sessions = [one.steps for one in many(12)]
    vocabulary = choose_vocabulary(sessions)
    checkpoint = tmp_path / "a.checkpoint"

    class KilledError(Exception):
        pass

    def die(_):
        raise KilledError

    with pytest.raises(KilledError):
        fitting.fit(sessions, sessions[:2], vocabulary, budget, checkpoint, die, lambda *_: None)
    rounds = []
    _, curve = fitting.fit(sessions, sessions[:2], vocabulary, budget, checkpoint, rounds.append, lambda *_: None)
    assert [point.epoch for point in rounds] == [2]
    assert [point.epoch for point in curve] == [1, 2]
