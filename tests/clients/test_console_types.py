"""The types of the console's scripts, by their comments."""

import json
import subprocess

import pytest
from npm_client import NODE
from npm_modules import MODULES
from places import ROOT

TSC = MODULES / "typescript" / "bin" / "tsc"


@pytest.mark.skipif(
    NODE is None or not TSC.exists(), reason="node or typescript is not installed: types are not checked"
)
def test_the_types_of_the_scripts_agree(tmp_path):
    options = {
        "allowJs": True, "checkJs": True, "noEmit": True, "strict": True, "target": "es2023", "module": "es2022",
        "moduleResolution": "bundler", "lib": ["es2023", "dom", "dom.iterable"], "types": [],
    }  # fmt: skip
    scripts = [str(path) for path in sorted((ROOT / "src/aliquot/web").glob("*.js"))]
    assert scripts
    project = tmp_path / "tsconfig.json"
    project.write_text(json.dumps({"compilerOptions": options, "files": scripts}))
    done = subprocess.run([NODE, TSC, "--project", project], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
