"""Clients of agents that others wrote, against our HTTP application: LangChain, the Agents SDK,
litellm and instructor, each told to answer, to think, to call a tool and to fill in a form.

    PYTHONPATH=tests python tests/conformance/agent_clients.py [--python PATH]

PATH is the Python of an environment with langchain-openai, openai-agents, litellm and instructor;
by default one is made, which needs a network. The engine is a toy that writes as a model would
that thinks and calls as Hermes does; what the clients make of it is in agent_calls.py. The first
failure ends the run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from cluster.live_site import served
from cluster.tool_calls import ULM, hermes
from cluster.toy_engine import ToyEngine

from outrider.actors.scheduling.request import OutputDelta, Request
from outrider.cluster.api.middleware.keys import Policy

CLIENTS = ["langchain-openai", "openai-agents", "litellm", "instructor"]
THOUGHT = "<think>\nI should look.\n</think>\n\n"


@dataclass
class ToyModel(ToyEngine):
    """Answers by what is in the prompt."""

    def __post_init__(self) -> None:
        self.tokenizer.chat_template = '<tool_call> "arguments" </think>'
        self.info.max_model_len = 100_000

    async def generate(self, request: Request) -> AsyncGenerator[OutputDelta]:
        prompt = self.tokenizer.decode(request.prompt_ids)
        grammar = request.sampling.grammar
        if grammar is not None:
            is_call = "arguments" in grammar.text
            name = "weather" if "weather" in grammar.text else "Weather"
            self.script = hermes(name, ULM) if is_call else ULM
        elif "<tool>" in prompt:
            self.script = THOUGHT + "It rains in Ulm."
        elif "weather" in prompt:
            self.script = THOUGHT + "Let me see." + hermes("weather", ULM)
        else:
            self.script = THOUGHT + "Hello."
        async for chunk in super().generate(request):
            yield chunk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="of an environment that has the clients")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = args.python or made(Path(folder))
        with served(ToyModel(), Policy()) as site:  # type: ignore[arg-type]
            script = Path(__file__).with_name("agent_calls.py")
            theirs = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
            command = [python, script, f"{site.url}v1"]
            done = subprocess.run(command, env=theirs, timeout=300, check=False)
    sys.exit(done.returncode)


def made(folder: Path) -> str:
    """A new environment's Python."""
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *CLIENTS], check=True)
    return python


if __name__ == "__main__":
    main()
