"""`aliquot bench workflow`: the interpreter, executions on a server, and other engines."""

from aliquot_bench.workflow.bench import WorkflowBench

__all__ = ["WorkflowBench"]
