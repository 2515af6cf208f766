"""No command about a server cuts a number or a name on a terminal of 80 columns, however long the names are.

Commands that tests run in their process are compared at 80 columns with a wide terminal (`command_line.run_here`). The
commands here list things with long names.
"""

import pytest
from live_platform import QuickPlatform

NAMESPACE = "a-research-group-with-a-long-name"
APP = "vision_lab"
FUNCTION = f"{APP}.classify_all_images_of_one_folder"
CODE = """
import aliquot
import time
app = aliquot.App("vision_lab")

@app.function(gpu=0.25, gpu_memory="64MiB", memory="256MiB", timeout=77, secrets=["token-of-the-archive"])
def classify_all_images_of_one_folder(seconds=0.0):
    print("sleeping for", seconds)
    time.sleep(seconds)
    return seconds

@app.function
def refuse_whatever_is_asked_for():
    raise ValueError("[no] luck")
"""
WORKFLOW = """{"StartAt": "ClassifyEverything", "States": {"ClassifyEverything":
{"Type": "Task", "Resource": "vision_lab.classify_all_images_of_one_folder", "End": true}}}"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    folder = tmp_path_factory.mktemp("platform")
    (folder / "origin").mkdir()
    (folder / "origin" / "a-file-with-a-long-name-in-a-dataset.csv").write_text("1,2,3\n" * 1000)
    with QuickPlatform(folder, "--devices", "host:2") as platform:
        (folder / "app.py").write_text(CODE)
        (folder / "env").write_text("ARCHIVE_TOKEN=abc\n")
        (folder / "classify-the-whole-archive-nightly.json").write_text(WORKFLOW)
        prepare(platform)
        yield platform


def prepare(platform):
    platform.aliquot("namespace", "create", NAMESPACE, "--weight", "1.25", "--per-minute", "12345")
    platform.aliquot("secret", "create", "token-of-the-archive", "--env-file", "env")
    platform.aliquot("deploy", "app.py")
    platform.aliquot("dataset", "add", "images-of-the-archive-of-2019", str(platform.folder / "origin"))
    platform.aliquot("workflow", "deploy", "classify-the-whole-archive-nightly.json")
    platform.aliquot("session", "create", "a-session-of-the-visitors-from-abroad", "--user", "a-visitor-from-abroad")
    platform.aliquot("package", "create", "tools-for-the-whole-laboratory")
    platform.aliquot("trigger", "create", "every-first-day-of-a-month-at-noon")
    platform.aliquot("rule", "create", "monthly-classification-of-all", "every-first-day-of-a-month-at-noon", FUNCTION)
    for _ in range(3):
        platform.aliquot("invoke", FUNCTION)
    platform.aliquot("invoke", f"{APP}.refuse_whatever_is_asked_for", code=1)
    platform.aliquot("workflow", "run", "classify-the-whole-archive-nightly")


COMMANDS = [
    "list", "status", "usage", f"latency {FUNCTION}", "why", "logs", "logs --failed", "kinds list",
    "activation list", "activation list --failed", "activation list --slowest", "activation get",
    "action list", f"action get {FUNCTION}", "workflow list", "namespace list",
    "session list", "dataset list", "dataset show images-of-the-archive-of-2019", "secret list", "model list",
    "package list", "package get tools-for-the-whole-laboratory", "trigger list",
    "trigger get every-first-day-of-a-month-at-noon", "rule list", "rule get monthly-classification-of-all",
    "wskprops", "doctor", "api list", "top --once",
    "whatif --policy fcfs",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_about_a_server_is_not_cut(platform, command):
    assert platform.aliquot(*command.split()).strip()  # which compares what it prints at 80 columns
