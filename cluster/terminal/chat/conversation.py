"""`outrider chat`: a conversation with a running server, each token coloured by where it came from.

Answers go to standard output, all else to the other; colours only where that is a terminal.
"""

import contextlib
import re
import sys
import time
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from outrider.clients.client import Client, Stream
from outrider.clients.errors import OutriderClientError
from outrider.clients.options import Options
from outrider.clients.results import Chunk, TokenOrigin
from outrider.cluster.config.demo_models import DEMO, HONESTLY
from outrider.cluster.terminal.console import stderr
from outrider.cluster.terminal.flags import client_flags
from outrider.cluster.terminal.word_wrap import Piece, WordWrap

COMMAND = re.compile(r"/[a-z?]+")
CLEAR, BYE, HELP = "/clear", "/bye", ("/help", "/?")
COMMANDS = {
    CLEAR: "forgets what was said",
    BYE: "ends the conversation, as Ctrl-D does",
    HELP[0]: "shows this",
}
COLOURS = {
    TokenOrigin.ACCEPTED: ("green", "drafted"),
    TokenOrigin.NGRAM: ("cyan", "copied"),
    TokenOrigin.RECOVERED: ("yellow", "corrected"),
    TokenOrigin.BONUS: ("blue", "bonus"),
    TokenOrigin.PLAIN: ("default", "plain"),
    TokenOrigin.PREDICTION: ("magenta", "predicted"),
}


def chat(
    url: client_flags.Url = None,
    api_key: client_flags.ApiKey = None,
    model: client_flags.Model = None,
    system: Annotated[
        str | None, typer.Option(help="The system's turn, before all others.")
    ] = None,
    max_tokens: client_flags.MaxTokens = 256,
    temperature: client_flags.Temperature = None,
    top_p: client_flags.TopP = None,
    top_k: client_flags.TopK = None,
    min_p: client_flags.MinP = None,
    seed: client_flags.Seed = None,
    stop: client_flags.Stop = None,
    speculation: client_flags.Drafts = True,
) -> None:
    """Talk to a running server. Ctrl-C stops an answer, /bye ends the conversation, /help says
    more.
    """
    options = client_flags.options(
        speculation,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=stop,
    )
    with client_flags.asked_server(url, api_key, model) as client:
        Conversation(client, options, system).run()


class Conversation:
    """The turns so far, and how they are shown."""

    def __init__(self, client: Client, options: Options, system: str | None) -> None:
        self._client = client
        self._options: Options = {**options, "return_token_texts": True}
        self._first = [] if system is None else [{"role": "system", "content": system}]
        self._turns = list(self._first)
        self._screen = Console(soft_wrap=True, highlight=False)
        self._is_watched = sys.stdin.isatty() and self._screen.is_terminal

    def run(self) -> None:
        """Until the end of the input."""
        if self._is_watched:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # gives input() its editing and history
            stderr().print(_legend())
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
            self._turns = list(self._first)
            stderr().print("[dim]the conversation begins anew[/dim]")
            return
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
        pace, wrap = Pace(), WordWrap(self._screen)
        with self._client.stream(messages=self._turns, **self._options) as stream:
            try:
                for chunk in stream:
                    pace.add(chunk)
                    if self._screen.is_terminal:
                        wrap.write(_painted(chunk))
                    else:
                        self._screen.print(_harmless(chunk.text), end="", markup=False)
            except KeyboardInterrupt:
                stderr().print("\n[dim]stopped[/dim]", end="")
            except OutriderClientError as error:
                stderr().print(Text.assemble(("\nerror: ", "bold red"), str(error)))
            self._screen.print()
            if stream.text:
                self._turns.append({"role": "assistant", "content": stream.text})
            else:
                self._turns.pop()  # of a question without an answer nothing is kept
            if self._is_watched and pace.num_tokens:
                stderr().print(_figures(pace, stream))


@dataclass(slots=True)
class Pace:
    """How fast tokens come, the first one apart."""

    num_tokens: int = 0
    asked_s: float = field(default_factory=time.monotonic)
    first_s: float = 0.0
    last_s: float = 0.0
    num_first: int = 0  # tokens that came at once

    def add(self, chunk: Chunk) -> None:
        """Count a commit, now."""
        self.last_s = time.monotonic()
        if not self.num_tokens:
            self.first_s, self.num_first = self.last_s, len(chunk.token_ids)
        self.num_tokens += len(chunk.token_ids)

    @property
    def tokens_per_s(self) -> float:
        """After the first commit; 0 if there was no other."""
        elapsed_s = self.last_s - self.first_s
        return (self.num_tokens - self.num_first) / elapsed_s if elapsed_s > 0 else 0.0


def _painted(chunk: Chunk) -> list[Piece]:
    """The text, each token's in the colour of its origin."""
    if "".join(chunk.token_texts) != chunk.text:  # what a broken stream had held back
        return [(_harmless(chunk.text), "")]
    pairs = zip(chunk.token_texts, chunk.origins, strict=True)
    return [(_harmless(text), COLOURS[origin][0]) for text, origin in pairs]


def _harmless(text: str) -> str:
    """The text without power over the terminal."""
    return text.replace("\x1b", "␛")


def _legend() -> Text:
    parts: list[str | tuple[str, str]] = ["tokens: "]
    for colour, name in COLOURS.values():
        parts += [("■ ", colour), f"{name}  "]
    return Text.assemble(*parts)


def _figures(pace: Pace, stream: Stream) -> Text:
    speculation = stream.speculation
    drafted, rate = speculation.num_drafted, speculation.acceptance_rate
    accepted = f"{rate:.0%} of {drafted} drafted tokens accepted" if drafted else "nothing drafted"
    return Text(
        f"{pace.num_tokens} tokens, the first after {pace.first_s - pace.asked_s:.2f} s, then "
        f"{pace.tokens_per_s:.0f} tokens/s; {accepted}, "
        f"{speculation.tokens_per_round:.2f} tokens a round; seed {stream.seed}",
        style="dim",
    )
