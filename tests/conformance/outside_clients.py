"""Clients that others wrote, against `outrider serve` with the demo pair: litellm and lm-eval.

    python tests/conformance/outside_clients.py [--venvs DIR]

Each client lives in a virtual environment of its own, made below DIR (kept, so that the next run
finds them) or in a temporary folder; only that step needs a network. litellm's part is
litellm_calls.py. lm-eval's `local-completions` measures four small tasks, written here, on a server
that speculates and on one that does not: log-likelihoods (echo and logprobs), rolling ones, greedy
texts and sampled texts. Scores and samples must be equal to the last bit, and /metrics must say
that the one server drafted and the other never did. The first failure ends the run.
"""

import argparse
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOKENIZER = ROOT / "cluster/demo/target"
LITELLM = ["litellm==1.106.0"]
LM_EVAL = ["lm-eval[api]==0.4.13", "transformers", "-c", str(ROOT / "constraints.txt")]
# k is fixed: under this load the controller would hardly draft.
WITH_SPECULATION = ["--k", "4", "--set", "engine.lookahead=fixed"]
WITHOUT_SPECULATION = ["--draft", "none", "--set", "engine.drafters=prediction"]
START_S = 240.0
STOP_S = 60.0

FACTS = [
    ("str.upper() returns", " a copy of the string with all characters converted to uppercase."),
    ("len(s) returns", " the number of items of an object."),
    ("list.append(x) adds", " an item to the end of the list."),
    ("dict.keys() returns", " a new view of the dictionary's keys."),
    ("abs(x) returns", " the absolute value of a number."),
    ("import os\nos.getcwd() returns", " a string of the current working directory."),
    ("range(stop) makes", " an immutable sequence of numbers."),
    ("def add(a, b):\n", "    return a + b"),
    ("class Stack:\n", "    def __init__(self):"),
    ("for line in", " file:"),
    ("A generator is", " a function which returns an iterator."),
    ("try:\n    x = int(s)\n", "except ValueError:"),
]
LENGTH = {"until": ["\n\n"], "max_gen_toks": 40}
GENERATION = {
    "output_type": "generate_until",
    "doc_to_target": "answer",
    "metric_list": [{"metric": "chrf"}],
}
TASKS = {
    "choice": {
        "output_type": "multiple_choice",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}}{{answer}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
    },
    "greedy": GENERATION | {"generation_kwargs": LENGTH | {"temperature": 0.0}},
    "sampled": GENERATION
    | {"generation_kwargs": LENGTH | {"do_sample": True, "temperature": 0.8, "top_p": 0.95}},
}


def check(name, condition, got=None):
    """One line on the terminal, or the end of the run."""
    if not condition:
        raise SystemExit(f"FAILED {name}: got {got!r}")
    print(f"ok {name}", flush=True)


def environment(folder, requirements):
    """The Python of a virtual environment that has these."""
    if not (folder / "bin/python").exists():
        venv.create(folder, with_pip=True)
    python = str(folder / "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
    return python


def answer_of(url):
    """Status and text of a GET, or None while nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return None


@contextlib.contextmanager
def served(*flags):
    """`outrider serve` on a free port; its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "outrider.cluster.cli", "serve", "--port", str(port)]
    command += ["--numerics", "exact", *flags]
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while (got := answer_of(f"{url}/ready")) is None or got[0] != 200:
                if time.monotonic() > deadline or process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"the server did not become ready: {log.read()}")
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            process.wait(STOP_S)


def num_drafted(url):
    """Drafted tokens that the server verified so far."""
    _, text = answer_of(f"{url}/metrics")
    name = "vllm:spec_decode_num_draft_tokens_total"
    return sum(float(value) for value in re.findall(rf"^{name}\S* (\S+)", text, re.MULTILINE))


def write_tasks(folder):
    """A folder that lm-eval's --include_path takes. JSON is YAML."""
    folder.mkdir()
    answers = [answer for _, answer in FACTS]
    rows = []
    for number, (question, answer) in enumerate(FACTS):
        others = [answers[(number + step) % len(answers)] for step in (1, 2)]
        gold = number % 3
        choices = [*others[:gold], answer, *others[gold:]]
        row = {"question": question, "answer": answer, "choices": choices, "gold": gold}
        rows.append(json.dumps(row))
    data = folder / "facts.jsonl"
    data.write_text("\n".join(rows))
    for name, task in TASKS.items():
        shared = {
            "task": f"outrider_{name}",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
            "doc_to_text": "question",
            "target_delimiter": "",
        }
        (folder / f"{name}.yaml").write_text(json.dumps(shared | task))


def evaluated(python, url, folder, tasks):
    """Scores by task, and every logged sample by task and document."""
    model = {
        "model": "demo",
        "base_url": f"{url}/v1/completions",
        "tokenizer": str(TOKENIZER),
        "tokenizer_backend": "huggingface",
        "tokenized_requests": True,
        "num_concurrent": 4,
        "max_length": 1024,
    }
    flags = {
        "--model": "local-completions",
        "--model_args": ",".join(f"{key}={value}" for key, value in model.items()),
        "--tasks": ",".join(f"outrider_{name}" for name in TASKS),
        "--include_path": str(tasks),
        "--batch_size": "3",
        "--output_path": str(folder),
    }
    command = [python, "-m", "lm_eval", *(part for pair in flags.items() for part in pair)]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tasks / "cache")}
    done = subprocess.run(
        [*command, "--log_samples"], env=os.environ | offline, capture_output=True, text=True
    )
    check(f"lm-eval against {url}", done.returncode == 0, done.stdout + done.stderr)
    [results] = folder.rglob("results_*.json")
    samples = {}
    for file in folder.rglob("samples_*.jsonl"):
        for line in file.read_text().splitlines():
            sample = json.loads(line)
            task = re.match(r"samples_(outrider_[a-z]+)_", file.name)[1]
            samples[task, sample["doc_id"]] = sample
    return json.loads(results.read_text())["results"], samples


def compare(on, off):
    """Scores and samples of the two runs, task by task."""
    for name in (f"outrider_{name}" for name in TASKS):
        scores, samples = on[0][name], {key: on[1][key] for key in on[1] if key[0] == name}
        check(f"{name}: {len(samples)} samples", len(samples) == len(FACTS), sorted(samples))
        other = {key: off[1][key] for key in off[1] if key[0] == name}
        differ = [key for key in samples if samples[key] != other.get(key)]
        check(
            f"{name}: samples are identical", not differ and samples.keys() == other.keys(), differ
        )
        told = {key: value for key, value in scores.items() if isinstance(value, float)}
        check(
            f"{name}: scores are identical, {told}", told and scores == off[0][name], off[0][name]
        )


def run(folder, scratch):
    """Everything; `folder` holds the virtual environments."""
    litellm = environment(folder / "litellm", LITELLM)
    lm_eval = environment(folder / "lm-eval", LM_EVAL)
    tasks = scratch / "tasks"
    write_tasks(tasks)
    with served(*WITH_SPECULATION) as url:
        alone = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # asks nobody for prices
        script = str(Path(__file__).with_name("litellm_calls.py"))
        done = subprocess.run([litellm, script, url], env=alone)
        check("litellm, all of it", done.returncode == 0, done.returncode)
        before = num_drafted(url)
        on = evaluated(lm_eval, url, scratch / "on", tasks)
        drafted = num_drafted(url) - before
        check(f"with speculation: {drafted:.0f} tokens were drafted", drafted > 0)
    with served(*WITHOUT_SPECULATION) as url:
        off = evaluated(lm_eval, url, scratch / "off", tasks)
        check("without speculation: none", num_drafted(url) == 0, num_drafted(url))
    compare(on, off)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venvs", type=Path, help="where virtual environments are kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outside-") as scratch:
        run((args.venvs or Path(scratch) / "venvs").resolve(), Path(scratch))


if __name__ == "__main__":
    main()
