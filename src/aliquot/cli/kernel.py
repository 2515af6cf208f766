"""`aliquot kernel`: check a kernel graph, show its memory, run it on this machine, and on the platform."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import typer

from aliquot.cli.code import Memory, Timeout, read_limits
from aliquot.cli.console import say, write_file
from aliquot.cli.deploy import put_action
from aliquot.cli.gateway import ACTIONS, AsJson, Data, FunctionName, connect
from aliquot.cli.kernel_files import checked_file, read_file
from aliquot.cli.results import count, print_json, seconds, show, size, table
from aliquot.cli.values import TakesPairs
from aliquot.core.errors import InputError
from aliquot.kernels.digest import digest
from aliquot.kernels.graph import CONST, GraphComplaint, KernelGraph
from aliquot.kernels.plan import MemoryPlan, plan_memory
from aliquot.kernels.reading import GraphRefused, read_graph

app = typer.Typer(
    help="Kernel graphs: device work without host code. docs/how-to/kernels.md explains them.", no_args_is_help=True
)
KIND = "kernel:1"
Inputs: TypeAlias = Annotated[
    list[str] | None, typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="The array for an input.")
]
CallInputs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input", "-i", metavar="NAME=FILE.npy", help="The array for an input, or NAME=@KEY for a stored object."
    ),
]
Stored: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--store", metavar="NAME=KEY", help="Store an output as an object instead of fetching it."),
]
Stay: TypeAlias = Annotated[
    bool, typer.Option("--stay", help="Leave the stored outputs on the device, too, for calls that name them.")
]
Literals: TypeAlias = Annotated[
    list[str] | None, typer.Option("--literal", "-l", metavar="NAME=VALUE", help="The value of a literal.")
]
OutputFolder: TypeAlias = Annotated[Path, typer.Option("--into", help="The folder that gets NAME.npy for each output.")]
Constants: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--const", "-c", metavar="FILE.npy", help="A constant. The graph names it by its digest."),
]
Iterations: TypeAlias = Annotated[int | None, typer.Option(help="At most as many as the graph says.")]
File: TypeAlias = Annotated[
    Path, typer.Argument(metavar="FILE", help="A kernel graph: JSON, or a model in the ONNX format (.onnx).")
]
Shapes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--shape", "-s", metavar="NAME=1,3,224,224", help="The shape of an input that a model leaves open."),
]


@app.command()
def check(file: File, shapes: Shapes = None, as_json: AsJson = False) -> None:
    """Check a graph: every mistake with its place. Exit code 1 if there is one."""
    try:
        read_file(file, shapes or [])
        complaints: list[GraphComplaint] = []
    except GraphRefused as refused:
        complaints = refused.complaints
    if as_json:
        print_json({"ok": not complaints, "complaints": [complaint._asdict() for complaint in complaints]})
    else:
        for complaint in complaints:
            say(str(complaint))
        say(f"{file}: {count(len(complaints), 'mistake')}" if complaints else f"{file} is right")
    if complaints:
        raise typer.Exit(1)


@app.command("show")
def show_graph(file: File, shapes: Shapes = None, as_json: AsJson = False) -> None:
    """Show the buffers of a graph with their places in device memory, and its kernels."""
    graph = checked_file(file, shapes or []).graph
    plan = plan_memory(graph)
    if as_json:
        print_json({"digest": digest(graph), **plan._asdict()})
        return
    say(
        f"graph {digest(graph)[:12]}: {count(len(graph.kernels), 'kernel')}, {size(plan.memory_bytes)} of constants "
        f"that stay on the device, {size(plan.run_bytes)} while it runs"
    )
    show(_buffer_table(graph, plan))
    rows = table("kernels", "kernel", "program", "grid", "block", "arguments")
    for kernel in graph.kernels:
        grid, block = (" x ".join(map(str, sizes)) for sizes in (kernel.grid, kernel.block))
        rows.add_row(kernel.entry, kernel.program, grid, block, str(len(kernel.arguments)))
    show(rows)


@app.command()
def deploy(
    file: File,
    name: Annotated[str, typer.Option(help="The name of the action.", show_default="the file's name")] = "",
    share: Annotated[
        float | None, typer.Option(help="Its share of a device; 0 runs it on the processors.", show_default="0.5")
    ] = None,
    constants: Constants = None,
    shapes: Shapes = None,
    memory: Memory = None,
    timeout: Timeout = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Deploy a graph, or update it. The platform compiles it and runs it once on zeros before it takes it.

    For example: [bold]aliquot kernel deploy blur.json[/] and then [bold]aliquot kernel call blur -i image=photo.npy[/]
    """
    found = checked_file(file, shapes or [])
    if constants or found.programs:
        from aliquot.cli.kernel_runs import constant_bytes
        from aliquot.cli.objects import put_blob

        gateway = connect(data)
        for content in (*map(constant_bytes, constants or ()), *found.programs.values()):
            put_blob(gateway, content)
    annotations = [] if share is None else [{"key": "gpu-share", "value": share}]
    name = name or file.stem
    body = {
        "exec": {"kind": KIND, "code": found.code},
        "limits": read_limits(timeout, memory),
        "annotations": annotations,
    }
    put_action(name, body, data, f"aliquot kernel call {name}", as_json=as_json)


@app.command(cls=TakesPairs)
def call(
    name: FunctionName,
    inputs: CallInputs = None,
    literals: Literals = None,
    outputs: OutputFolder = Path(),
    stored: Stored = None,
    stay: Stay = False,
    iterations: Iterations = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Call a graph on the platform, with arrays from files of NumPy.

    For example: [bold]aliquot kernel call blur -i image=photo.npy --into out[/]
    """
    from aliquot.cli import kernel_runs

    gateway = connect(data)
    graph = _graph_of(name, gateway.entity(ACTIONS, name, code=True)["exec"])
    targets = kernel_runs.targets(graph, stored or [], stay=stay)
    body = kernel_runs.call_file(graph, inputs or [], literals or [], iterations, targets)
    found, counters = kernel_runs.called(gateway, name, body)
    _write(graph, found, outputs)
    if as_json:
        objects = {output: target["key"] for output, target in targets.items()}
        print_json({"counters": counters, "outputs": sorted(found), "objects": objects})
    else:
        written = [f"{outputs / one}.npy" for one in found] + [f"object {each['key']}" for each in targets.values()]
        say(f"{count(counters['iterations'], 'iteration')}; " + ", ".join(written))


@app.command(cls=TakesPairs)
def run(
    file: File,
    inputs: Inputs = None,
    constants: Constants = None,
    literals: Literals = None,
    outputs: OutputFolder = Path(),
    iterations: Iterations = None,
    shapes: Shapes = None,
    as_json: AsJson = False,
) -> None:
    """Run a graph on this machine, without a platform.

    For example: [bold]aliquot kernel run blur.json -i image=photo.npy --into out[/]
    """
    from aliquot.cli import kernel_runs

    found = checked_file(file, shapes or [])
    result = kernel_runs.run_here(found, inputs or [], constants or [], literals or [], iterations)
    _write(found.graph, result.outputs, outputs)
    if as_json:
        print_json(
            {
                "seconds": result.run_s,
                "counters": msgspec.to_builtins(result.counters),
                "outputs": sorted(result.outputs),
            }
        )
        return
    say(
        f"{count(result.counters.iterations, 'iteration')} in {seconds(result.run_s)}; "
        + ", ".join(f"{outputs / name}.npy" for name in result.outputs)
    )


def _write(graph: KernelGraph, outputs: Mapping[str, bytes], folder: Path) -> None:
    from aliquot.cli.kernel_runs import npy_bytes

    folder.mkdir(parents=True, exist_ok=True)
    for name, data in outputs.items():
        write_file(folder / f"{name}.npy", npy_bytes(graph.buffers[name], data), "--into")


def _graph_of(name: str, code: Mapping[str, Any]) -> KernelGraph:
    graph = read_graph(code["code"]) if code["kind"] == KIND else None
    if not isinstance(graph, KernelGraph):
        raise InputError(f"{name} is of the kind {code['kind']} and no kernel graph; `aliquot invoke` calls it")
    return graph


def _buffer_table(graph: KernelGraph, plan: MemoryPlan) -> Any:  # noqa: ANN401 - a table of rich
    rows = table("buffers", "buffer", "kind", "type", "bytes", "at")
    for name, buffer in graph.buffers.items():
        place = "" if buffer.kind == CONST else str(plan.offsets[name])
        rows.add_row(name, buffer.kind, f"{buffer.dtype}{list(buffer.shape)}", str(buffer.size_bytes), place)
    return rows
