"""The model service, trained from a real log in a real process, replaced while it serves, and killed."""

import os
import signal
import subprocess
import sys

import pytest

from aliquot.learn.settings import LearnSettings
from aliquot.learn.version_choice import BEST, ModelError
from aliquot.storage.log import AccessLog
from aliquot.storage.model_service import ModelService
from aliquot.storage.records import FileAccess, Found
from aliquot.storage.training.steps import history_of
from aliquot.testing.waiting import wait_until

FILES = ("config.json", "shard-0", "shard-1", "base.ckpt")
NEVER = 3600.0
PLAIN = LearnSettings(with_lstm=False, look_every_s=NEVER, niceness=0)


def fill(log, sessions, tenants=2, name="s"):
    for number in range(sessions):
        tenant = f"user{number % tenants}"
        for place, file in enumerate(FILES):
            when = 1000.0 * number + place
            session, run = f"{name}{number}", f"i{number}"
            path = f"{tenant}/{file}"
            log.add(FileAccess(when, tenant, session, "train", run, "data", path, 1000, "open", 0.1, Found.FETCHED))


def wait_for(serving):
    return wait_until(serving.state, lambda state: not state.training.running, what="the training's end")


@pytest.fixture
def log(tmp_path):
    made = AccessLog(tmp_path / "accesses.db")
    yield made
    made.close()


@pytest.fixture
def serving(tmp_path, log):
    made = ModelService(tmp_path / "models", log, PLAIN)
    yield made
    made.close()


def test_nothing_is_predicted_before_anything_is_learned(serving):
    assert serving.next_files("user0", "new", "") == ("none", [])
    assert serving.state().versions == ()


def test_too_few_sessions_are_an_answer_not_a_failure(serving, log):
    fill(log, 3)
    serving.train()
    state = wait_for(serving)
    assert "there are 3 sessions" in state.training.error
    assert state.model == "none"


def test_what_was_learned_serves_at_once(serving, log):
    fill(log, 20)
    serving.train()
    state = wait_for(serving)
    assert state.training.error == ""
    assert state.model.endswith("(version 1)")
    for function in ("", "train"):
        model, files = serving.next_files("user1", "new", function)
        assert model == state.model
        sure = [one for one in files if one.probability > 0.75]
        assert [one.path for one in sure] == [f"user1/{file}" for file in FILES]
        assert {(one.dataset, one.size) for one in sure} == {("data", 1000)}


def test_after_an_open_what_comes_then_is_told(serving, log):
    fill(log, 20)
    serving.train()
    wait_for(serving)
    log.add(FileAccess(1e6, "user0", "new", "train", "i", "data", "user0/shard-1", 1000, "open", 0.1, Found.CACHED))
    _, files = serving.next_files("user0", "new", None)
    assert files[0].path == "user0/base.ckpt"


def test_the_operator_chooses_and_goes_back(serving, log):
    fill(log, 20)
    for _ in range(2):
        serving.train()
        wait_for(serving)
    assert serving.state().serving.version == 1
    assert serving.use(2, None).model == "markov1 (version 2)"
    assert serving.roll_back().serving.version == 1
    assert serving.use(None, "none").model == "none (version 1)"
    assert serving.next_files("user0", "new", "") == ("none (version 1)", [])
    assert serving.use(None, None).model.startswith("markov1")
    serving.use(2, None)
    best = serving.use(BEST, "none")
    assert (best.serving.version, best.serving.pinned, best.model) == (1, False, "none (version 1)")
    serving.use(BEST, None)
    with pytest.raises(ModelError, match="there is no version 9; there are 1, 2"):
        serving.use(9, None)
    with pytest.raises(ModelError, match="there is no predictor 'oracle'"):
        serving.use(None, "oracle")
    with pytest.raises(ModelError, match="there is no network in this version"):
        serving.use(None, "lstm")


def test_what_served_serves_after_a_restart_and_a_broken_version_does_not(tmp_path, log, serving):
    fill(log, 20)
    serving.train()
    wait_for(serving)
    again = ModelService(tmp_path / "models", log, PLAIN)
    assert again.state().model == serving.state().model
    again.close()
    (tmp_path / "models" / "000001" / "tables.msgpack").write_bytes(b"broken")
    broken = ModelService(tmp_path / "models", log, PLAIN)
    assert broken.next_files("user0", "new", "") == ("none", [])
    assert "does not match its checksum" in broken.state().error
    broken.close()
    assert serving.next_files("user0", "new", "")[1] != []  # the loaded version stays in use


def test_enough_new_accesses_have_it_learn_by_itself(tmp_path, log):
    eager = LearnSettings(with_lstm=False, look_every_s=0.05, new_accesses=40, niceness=0, when_idle=False)
    serving = ModelService(tmp_path / "models", log, eager)
    fill(log, 20)
    wait_until(serving.state, lambda state: state.versions, what="a version that it learned by itself")
    serving.close()


def test_a_training_that_is_killed_does_no_harm_and_the_next_one_learns(serving, log):
    fill(log, 20)
    serving.train()
    with pytest.raises(ModelError, match="already running"):
        serving.train()
    os.kill(serving._trainer._process.pid, signal.SIGKILL)
    state = wait_for(serving)
    assert "ended before it was done" in state.training.error
    serving.train()
    assert wait_for(serving).serving.version == 1


def test_the_call_that_arrives_is_the_last_that_is_known():
    steps = history_of([], "ann", "train")
    assert [step.file for step in steps] == ["begin:ann", "call:ann/train"]


def test_a_users_marks_come_after_those_of_anybody():
    steps = history_of([], "lab", "train", "ann")
    assert [step.file for step in steps] == ["begin:lab", "begin:lab/ann", "call:lab/train", "call:lab/train:ann"]
    assert all(step.is_mark for step in steps)


def test_users_of_one_namespace_are_told_apart_and_one_never_seen_has_what_all_open(serving, log):
    for number in range(24):
        user = ("ann", "bob")[number % 2]
        for place, path in enumerate(("config.json", f"{user}/shard", f"{user}/base.ckpt")):
            who = ("lab", f"s{number}", "train", f"i{number}")
            what = ("data", path, 1000, "open", 0.1, Found.FETCHED)
            log.add(FileAccess(1000.0 * number + place, *who, *what, user))
    serving.train()
    assert wait_for(serving).training.error == ""

    def sure(function, user):
        _, files = serving.next_files("lab", "new", function, user)
        return [one.path for one in files if one.probability > 0.75]

    for function in ("", "train"):
        for user in ("ann", "bob"):
            assert sure(function, user) == ["config.json", f"{user}/shard", f"{user}/base.ckpt"]
        assert sure(function, "eve") == sure(function, "") == ["config.json"]


def test_a_training_steps_back_behind_everybody():
    code = (
        "import os; from aliquot.learn.progress import lower_priority; "
        "from aliquot.learn.settings import LearnSettings; lower_priority(LearnSettings()); "
        "print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE, flush=True); os._exit(0)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split()[0] == "19"
    assert said.split()[1] == "True"
