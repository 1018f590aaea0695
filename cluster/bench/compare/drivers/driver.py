"""Another engine in a Python of its own: one line of JSON is a run, one line answers it.

    python driver.py MODULE '{"target": …, "draft": …, "folder": …, "num_threads": …, …}'

Works come on standard input as {"prompts", "num_tokens", "temperature", "num_streams", "setting"};
{"seconds", "ids"} or {"error"} goes to standard output, all that the engine prints to the other. An
empty line says that the models are loaded. Imports nothing of Outrider: it need not be there.
"""

import importlib
import json
import os
import sys


def main() -> None:
    """Until the input ends."""
    module, facts = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    driver = importlib.import_module(module).Driver(json.loads(facts))
    try:
        for line in sys.stdin:
            try:
                seconds, ids = driver.run(**json.loads(line))
                answer = {"seconds": seconds, "ids": ids}
            except Exception as error:  # of any kind: the engine is not ours
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        driver.close()


if __name__ == "__main__":
    main()
