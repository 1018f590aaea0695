"""What is asked, and of which models: the real things."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simulator.recorded_runner import ModelledRecording, Recording, WrongRecording

from outrider.actors.text.tokenizer import Tokenizer
from outrider.cluster.bench.prompts import prompts as questions

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "cluster" / "demo"
NUM_PROMPTS = 12
MAX_TOKENS = 96
HEADS = {"questions, head": "questions", "held-out, head": "held-out"}  # the demo's EAGLE-3
NAMES = ("questions", "held-out", "wrong", "mixed", "chat", "edits")
MODELLED = {f"agrees {share}": share for share in (0.7, 0.8, 0.85, 0.9)}  # drafts made up
OF_SMOLLM2 = ("chat", "edits")
BEGINNINGS = ("The Python tutorial says that", "This module provides", "class ", "import ")
# Where the code comes from that is to be repeated: the answer may be copied from it.
FUNCTIONS = ("dataclasses.py", "textwrap.py", "shlex.py", "bisect.py", "glob.py")
EDIT = "Repeat this code, and put a comment above its first line:\n\n{code}"
Ids = tuple[int, ...]


@dataclass(frozen=True)
class Text:
    """Prompts, and the models that continue them."""

    name: str
    target: Recording
    draft: Recording | ModelledRecording | None
    prompts: tuple[Ids, ...]
    predictions: tuple[Ids, ...] = ()  # of each prompt, where the client has one
    max_tokens: int = MAX_TOKENS
    num_seeds: int = 4  # a prompt is asked again with so many, then as before
    head: str = ""  # KIND:PATH of what drafts out of the target's states


class Texts:
    """Made when they are asked for; recordings are shared."""

    def __init__(self, smollm2: Path | None = None) -> None:
        """`smollm2`: its directory, for `chat` and `edits`."""
        self._smollm2 = smollm2
        self._recordings: dict[tuple[type, Path], Recording] = {}

    def __getitem__(self, name: str) -> Text:
        if name in OF_SMOLLM2:
            return self._of_smollm2(name)
        target = self._recording(DEMO / "target")
        if name in HEADS:
            head = f"eagle3:{DEMO / 'eagle3'}"
            return Text(name, target, None, _of_demo(HEADS[name]), head=head)
        if name in MODELLED:
            modelled = ModelledRecording(target, MODELLED[name])
            return Text(name, target, modelled, _of_demo("questions"))
        draft = self._recording(DEMO / "draft", WrongRecording if name == "wrong" else Recording)
        return Text(name, target, draft, _of_demo(name))

    def _of_smollm2(self, name: str) -> Text:
        assert self._smollm2 is not None, f"{name} needs SmolLM2's directory"
        tokenizer, target = Tokenizer(self._smollm2), self._recording(self._smollm2)
        if name == "chat":
            return Text(name, target, None, _chats(tokenizer))
        asked, expected = zip(*_edits(tokenizer), strict=True)
        return Text(name, target, None, asked, expected)

    def _recording(self, folder: Path, kind: type = Recording) -> Recording:
        if (kind, folder) not in self._recordings:
            self._recordings[kind, folder] = kind(folder)
        return self._recordings[kind, folder]


def _of_demo(name: str) -> tuple[Ids, ...]:
    tokenizer = Tokenizer(DEMO / "target")
    known = questions(tokenizer, NUM_PROMPTS)
    lines = (DEMO / "held_out.txt").read_text("utf-8").split("\n")
    asked = [line for line in lines if line.strip()]
    chosen = asked[:: len(asked) // NUM_PROMPTS][:NUM_PROMPTS]
    hidden = tuple(_turn(tokenizer, line) for line in chosen)
    pages = tuple(tuple(tokenizer.encode(text)) for text in BEGINNINGS)
    match name:
        case "questions" | "wrong":
            return known
        case "held-out":
            return hidden
        case "mixed":
            return tuple(
                each for three in zip(known, hidden, pages * 3, strict=True) for each in three
            )
    raise KeyError(f"Got {name!r}, expected one of {NAMES}")


def _chats(tokenizer: Tokenizer) -> tuple[Ids, ...]:
    """The first of each kind that `real.py` asks."""
    kinds = json.loads((ROOT / "tests/benches/chats.json").read_text("utf-8"))
    told = (kind["turns"][-1] for kind in kinds)
    first = (
        {key: values[0] for key, values in kind.items() if isinstance(values, list)}
        for kind in kinds
    )
    return tuple(
        _turn(tokenizer, turn.format(**words)) for turn, words in zip(told, first, strict=True)
    )


def _edits(tokenizer: Tokenizer) -> Iterator[tuple[Ids, Ids]]:
    """Code of the standard library that is to be repeated with a comment in it."""
    folder = Path(json.__file__).parents[1]
    for file in FUNCTIONS:
        lines = (folder / file).read_text("utf-8").split("\n")
        start = next(at for at, line in enumerate(lines) if line.startswith("def "))
        code = "\n".join(lines[start : start + 14])
        asked = EDIT.format(code=code)
        yield _turn(tokenizer, asked), tuple(tokenizer.encode(code, adds_special=False))


def _turn(tokenizer: Tokenizer, text: str) -> Ids:
    return tuple(tokenizer.render_chat([{"role": "user", "content": text}]))
