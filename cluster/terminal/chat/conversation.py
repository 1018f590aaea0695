"""A conversation in the terminal, each token coloured by where it came from, thoughts folded.

Answers go to standard output, all else to the other; colours only where that is a terminal.
"""

import contextlib
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.text import Text

from outrider.clients.client import Client, Stream
from outrider.clients.errors import OutriderClientError
from outrider.clients.options import Options
from outrider.cluster.config.demo_models import DEMO, HONESTLY
from outrider.cluster.terminal.chat.answer_view import AnswerView, legend
from outrider.cluster.terminal.chat.example_tools import ExampleTool, called
from outrider.cluster.terminal.console import stderr

COMMAND = re.compile(r"/[a-z?]+")
CLEAR, THOUGHTS, BYE, HELP = "/clear", "/thoughts", "/bye", ("/help", "/?")
COMMANDS = {
    CLEAR: "forgets what was said",
    THOUGHTS: "shows what the model thought before its last answer",
    BYE: "ends the conversation, as Ctrl-D does",
    HELP[0]: "shows this",
}
MOST_CALLS = 8  # answers in a row that call tools
NONE: Mapping[str, ExampleTool] = MappingProxyType({})


class Conversation:
    """The turns so far, and how they are shown."""

    def __init__(
        self,
        client: Client,
        options: Options,
        system: str | None,
        tools: Mapping[str, ExampleTool] = NONE,
    ) -> None:
        self._client = client
        self._options: Options = {**options, "return_token_texts": True}
        if tools:
            self._options["tools"] = [tool.description for tool in tools.values()]
        self._tools = tools
        self._first = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[dict[str, Any]] = list(self._first)
        self._thoughts = ""  # before the last answer
        self._screen = Console(soft_wrap=True, highlight=False)
        self._is_watched = sys.stdin.isatty() and self._screen.is_terminal

    def run(self) -> None:
        """Until the end of the input."""
        if self._is_watched:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # gives input() its editing and history
            stderr().print(legend())
            if self._client.served_model() == DEMO:
                stderr().print(Text(HONESTLY, style="dim"))
        while (said := self._heard()) is not None:
            if self._is_watched and COMMAND.fullmatch(said.strip()):
                if said.strip() == BYE:
                    break
                self._obey(said.strip())
            elif said.strip():
                self._turns.append({"role": "user", "content": said})
                self._answer()

    def _obey(self, command: str) -> None:
        """What is not for the model."""
        if command == CLEAR:
            self._turns, self._thoughts = list(self._first), ""
            stderr().print("[dim]the conversation begins anew[/dim]")
        elif command == THOUGHTS:
            stderr().print(Text(self._thoughts.strip() or "there were none", style="dim"))
        else:
            unknown = "" if command in HELP else f"{command} is no command. "
            words = "; ".join(f"{name} {what}" for name, what in COMMANDS.items())
            stderr().print(Text(f"{unknown}{words}. All else goes to the model.", style="dim"))

    def _heard(self) -> str | None:
        """What the user says next; None at the end."""
        while True:
            try:
                return input("\n> " if self._is_watched else "")
            except EOFError:
                if self._is_watched:
                    stderr().print()
                return None
            except KeyboardInterrupt:
                stderr().print("\n[dim]Ctrl-D ends[/dim]")

    def _answer(self) -> None:
        """One answer, and those that follow the calls in it. Of a question without one nothing is
        kept.
        """
        self._thoughts, question = "", len(self._turns) - 1
        for _ in range(MOST_CALLS):
            message = self._said()
            if message is None:
                del self._turns[question:]
                return
            self._turns.append(message)
            calls = message.get("tool_calls") or ()
            self._turns += [self._run(call) for call in calls]
            if not calls:
                return
        stderr().print(Text(f"stopped after {MOST_CALLS} answers that called", style="dim"))

    def _said(self) -> dict[str, Any] | None:
        """The model's turn, shown as it comes; None if it said nothing."""
        view, message = AnswerView(self._screen), None
        with self._client.stream(messages=self._turns, **self._options) as stream:
            try:
                for chunk in stream:
                    view.add(chunk)
                    message = chunk.message or message
            except KeyboardInterrupt:
                stderr().print("\n[dim]stopped[/dim]", end="")
            except OutriderClientError as error:
                stderr().print(Text.assemble(("\nerror: ", "bold red"), str(error)))
            view.end()
            self._thoughts += view.thoughts
            if self._is_watched and stream.text:
                stderr().print(_figures(stream))
            if message is None and view.content:  # it was stopped
                message = {"role": "assistant", "content": view.content}
            return dict(message) if message is not None and stream.text else None

    def _run(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The turn that answers a call."""
        function = call["function"]
        result = called(self._tools, function["name"], function["arguments"])
        shown = f"{function['name']} {function['arguments']} → {result}"
        stderr().print(Text(shown, style="dim"))
        return {"role": "tool", "tool_call_id": call["id"], "content": result}


def _figures(stream: Stream) -> Text:
    """What is known of the answer, times by the server's clock."""
    told = stream.speculation
    speed = ""
    if (timings := stream.timings) is not None:
        speed = (
            f", the first after {timings.time_to_first_token_s:.2f} s, "
            f"then {timings.tokens_per_s:.0f} tokens/s"
        )
    accepted = "nothing drafted"
    if told.num_drafted:
        accepted = f"{told.acceptance_rate:.0%} of {told.num_drafted} drafted tokens accepted"
    return Text(
        f"{told.num_tokens} tokens{speed}; {accepted}, {told.tokens_per_round:.2f} tokens a round; "
        f"seed {stream.seed}",
        style="dim",
    )
