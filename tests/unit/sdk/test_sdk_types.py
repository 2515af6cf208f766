"""mypy knows what `f.remote` takes and gives: right calls pass, wrong ones do not."""

import re
import subprocess
import sys

from places import ROOT

PROGRAM = """
import asyncio
from collections.abc import AsyncIterator, Iterator
import aliquot

app = aliquot.App("typed")

@app.function(gpu=0.5, memory="1GiB")
def scale(value: int, factor: float = 2) -> str:
    return str(value * factor)

@app.function
def bare(text: str) -> list[int]:
    return [len(text)]

@app.function(batch=32, gpu=0.5, pure=True)
def classify(images: list[bytes]) -> list[str]:
    return [str(len(image)) for image in images]

@app.workflow(timeout="1h", durable=False)
def twice(value: int) -> str:
    return scale(value, factor=2)

@app.workflow
def plain(value: int) -> int:
    return value

executed: str = twice.remote(3)
execution = twice.start(3)
executed = execution.result(timeout=3)
patient: str = scale.options(retry=aliquot.Retry(3, on=ValueError), timeout="3s")(1)

label: str = classify(b"")
label = classify.remote(b"")
labels: Iterator[str] = classify.map([b"", b""])
here: str = scale(1)
there: str = scale.remote(1, factor=3)
handle: aliquot.Handle[str] = scale.spawn(1)
result: str = handle.get(timeout=5)
results: Iterator[str] = scale.map([1, 2])
both: Iterator[str | Exception] = scale.map([1, 2], return_exceptions=True)
lengths: list[int] = bare.remote("a")

async def main() -> None:
    there: str = await scale.remote.aio(1)
    spawned: aliquot.Handle[str] = await scale.spawn.aio(1)
    again: str = await spawned.get.aio(timeout=1)
    several: AsyncIterator[str] = scale.map.aio([1, 2])
    await app.deploy.aio()
    async with app.session(user="ann", metadata={"paper": 3}) as session:
        name: str = session.id

with app.session("analysis") as session:
    begun: aliquot.Session = session

twice.remote("a")  # wrong
integer: int = twice.remote(1)  # wrong
plain.start()  # wrong
scale.options(retries=3)  # wrong
classify.remote([b""])  # wrong
classify([b""])  # wrong
labelled: list[str] = classify.remote(b"")  # wrong
scale("a")  # wrong
scale.remote("a")  # wrong
scale.remote(1, 2, 3)  # wrong
scale.remote(1, facto=3)  # wrong
scale.spawn()  # wrong
scale.map(["a"])  # wrong
number: int = scale.remote(1)  # wrong
bare.remote(1)  # wrong
handle.get("a")  # wrong
app.function(gpus=1)  # wrong
app.session(1)  # wrong
app.session(metadata=[1])  # wrong

async def bad() -> None:
    await scale.remote.aio("a")  # wrong
    number: int = await scale.remote.aio(1)  # wrong
"""


def test_calls_are_checked_against_the_signature(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file",
            "",
            "--cache-dir",
            tmp_path / "cache",
            "program.py",
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", done.stdout)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, done.stdout + done.stderr
