"""Run by Lithops' own interpreter: maps a function over a hundred numbers, and prints what came of it as JSON."""

import json
import sys

import lithops


def square(x):
    return x * x


def add(results):
    return sum(results)


def main():
    executor = lithops.FunctionExecutor(config=json.loads(sys.argv[1]))
    futures = executor.map(square, range(100))
    came = {"squares": executor.get_result(futures), "ids": [future.activation_id for future in futures]}
    came["total"] = executor.get_result(executor.map_reduce(square, range(5), add))
    came["called"] = executor.get_result(executor.call_async(square, 12))
    came["runtimes"] = executor.compute_handler.list_runtimes()
    executor.clean(clean_cloudobjects=False, on_exit=False)
    executor.compute_handler.clean()
    came["left"] = executor.compute_handler.list_runtimes()
    print(json.dumps(came))


main()
