"""The code of an action may be a zip file."""

import pytest
from sandboxes import BROKEN, ECHO, isolation, play, result, texts, with_and_without_walls, zipped

from aliquot.live.node.base import Status


@with_and_without_walls
def test_a_zip_is_unpacked_into_the_working_directory(tmp_path, walls):
    files = {
        "__main__.py": "import os, helper\ndef main(args):\n    return helper.read(os.getcwd())",
        "helper.py": "import os\ndef read(at):\n    return {'data': open('data/text').read(), 'here': os.listdir(at)}",
        "data/text": "kept",
    }

    async def scene(rig):
        sandbox = await rig.started(zipped(files), binary=True)
        found = result(await rig.run(sandbox))
        assert found["data"] == "kept"
        assert {"__main__.py", "helper.py", "data"} <= set(found["here"])

    play(tmp_path, scene, isolation=isolation(walls))


def test_a_zip_may_bring_a_virtualenv(tmp_path):
    files = {
        "__main__.py": "import brought\ndef main(args):\n    return {'brought': brought.VALUE}",
        "virtualenv/bin/activate_this.py": "import os, sys\nsys.path.insert(0, os.path.dirname(__file__) + '/../site')",
        "virtualenv/site/brought.py": "VALUE = 3",
    }

    async def scene(rig):
        assert result(await rig.run(await rig.started(zipped(files), binary=True))) == {"brought": 3}

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (None, "the code is neither a zip nor a tar.gz in base64"),
        ({"other.py": ""}, "Zip file does not include __main__.py"),
        ({"__main__.py": "", "../escape.py": ""}, "leads out of the archive"),
        ({"__main__.py": "", "/etc/escape": ""}, "leads out of the archive"),
        ({"__main__.py": "", "zeros": 200_000_000}, "looks like a zip bomb"),
        ({"__main__.py": "", "virtualenv/x": ""}, "Invalid virtualenv"),
        ({"__main__.py": "def main("}, "SyntaxError"),
    ],
    ids=["no_zip", "no_main", "dots", "absolute", "bomb", "virtualenv", "syntax"],
)
def test_a_bad_zip_is_a_developer_error_that_says_why(tmp_path, files, said):
    code = "bm90IGEgemlw" if files is None else zipped(files)

    async def scene(rig):
        outcome = await rig.not_started(code, binary=True)
        assert (outcome.status, result(outcome)) == (Status.DEVELOPER_ERROR, BROKEN)
        assert any(said in line for line in texts(outcome, "stderr"))

    play(tmp_path, scene)


def test_a_symbolic_link_in_a_zip_is_refused(tmp_path):
    import base64
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__main__.py", ECHO)
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")

    async def scene(rig):
        outcome = await rig.not_started(base64.b64encode(buffer.getvalue()).decode(), binary=True)
        assert result(outcome) == BROKEN
        assert "symbolic link" in texts(outcome, "stderr")[0]

    play(tmp_path, scene)
