"""Secrets on a real server: only functions that name them have them, and nothing else shows them."""

import json
import shutil

import pytest
from live_platform import QuickPlatform

VALUE, NEW_VALUE = "s3cr3t-of-the-lab", "another-s3cr3t"
CODE = "import os\ndef main(args):\n    return {'token': len(os.environ.get('HF_TOKEN', '')), 'own': OWN}\n"
CODE = CODE.replace("OWN", "os.environ.get('MODE')")
NAMES = ["-a", "secrets", '["hf"]', "-a", "env", '{"MODE": "fast"}']


@pytest.fixture
def platform(tmp_path):
    (tmp_path / "reads.py").write_text(CODE)
    with QuickPlatform(tmp_path) as platform:
        yield platform


def create(platform, value=VALUE, *options, **more):
    return platform.aliquot("secret", "create", "hf", "HF_TOKEN", *options, given=f"{value}\n", **more)


def called(platform, name):
    return json.loads(platform.aliquot("invoke", name))


def test_a_secret_is_in_functions_that_name_it_and_nowhere_else(platform):
    shown = create(platform)
    platform.aliquot("action", "create", "names", "reads.py", *NAMES)
    platform.aliquot("action", "create", "other", "reads.py")
    assert called(platform, "names") == {"token": len(VALUE), "own": "fast"}
    assert called(platform, "other") == {"token": 0, "own": None}
    (listed,) = platform.json("secret", "list")
    assert (listed["name"], listed["variables"], listed["functions"]) == ("hf", ["HF_TOKEN"], ["names"])
    for words in (("secret", "list"), ("action", "get", "names"), ("activation", "list"), ("logs", "--last", "5")):
        shown += platform.aliquot(*words)
    shown += create(platform, code=6)  # it exists
    shown += platform.aliquot("secret", "create", "big", "B", given=VALUE * 9000, code=6)
    shown += platform.log.read_text()
    assert VALUE not in shown
    platform.stop()
    found = [path for path in platform.data.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
    assert found == []
    assert (platform.data / "secrets.key").stat().st_mode & 0o777 == 0o600
    platform.start()
    assert called(platform, "names")["token"] == len(VALUE)


def test_a_new_value_replaces_the_old_one_in_warm_functions(platform):
    create(platform)
    platform.aliquot("action", "create", "names", "reads.py", *NAMES)
    assert called(platform, "names")["token"] == len(VALUE)
    create(platform, NEW_VALUE, "--overwrite")
    assert called(platform, "names")["token"] == len(NEW_VALUE)
    assert "named by names" in platform.aliquot("secret", "delete", "hf", "--yes", code=6)
    platform.aliquot("delete", "names", "--yes")
    platform.aliquot("secret", "delete", "hf", "--yes")
    assert platform.json("secret", "list") == []
    refused = platform.aliquot("action", "create", "names", "reads.py", *NAMES, code=6)
    assert "namespace guest has no secret 'hf'; there are none; make it with: aliquot secret create hf" in refused


def test_a_backup_has_the_secrets_and_a_lost_key_is_told(platform):
    create(platform)
    platform.aliquot("action", "create", "names", "reads.py", *NAMES)
    platform.aliquot("backup", "all.tar")
    platform.stop()
    shutil.rmtree(platform.data)
    platform.aliquot("restore", "all.tar", "--data", str(platform.data))
    platform.start()
    assert called(platform, "names")["token"] == len(VALUE)
    platform.stop()
    (platform.data / "secrets.key").unlink()
    platform.start()
    failed = platform.aliquot("invoke", "names", code=1)
    assert "secret 'hf' cannot be decrypted, because the key file is missing; restore the file" in failed
    create(platform, NEW_VALUE, "--overwrite")
    assert called(platform, "names")["token"] == len(NEW_VALUE)


def test_values_on_the_command_line_and_of_wrong_variables_are_refused(platform, tmp_path):
    refused = platform.aliquot("secret", "create", "hf", f"HF_TOKEN={VALUE}", code=2)
    assert "it takes the name alone" in refused
    wrong = platform.aliquot("secret", "create", "hf", "__OW_API_KEY", given=VALUE, code=6)
    assert "'__OW_API_KEY' is not a variable's name" in wrong
    (tmp_path / "bad.env").write_text(f"A=1\n{VALUE}\n")
    lines = platform.aliquot("secret", "create", "hf", "--env-file", "bad.env", code=2)
    assert "line 2: it takes VARIABLE=VALUE" in lines
    several = platform.aliquot("secret", "create", "hf", "A", "B", given=VALUE, code=2)
    assert "give several with --env-file" in several
    assert VALUE not in refused + wrong + lines + several
