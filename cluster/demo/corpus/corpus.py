"""The text that the demo pair learns: pages of documentation, and facts to be asked for.

Some facts are held out whole: neither their chats nor the pages tell them.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many
from dataclasses import asdict, dataclass
from pathlib import Path

from outrider.actors.errors import InvalidConfig
from outrider.cluster.demo.corpus import docstrings, documented
from outrider.cluster.demo.corpus.fact import Fact, Kind, normal
from outrider.cluster.demo.corpus.popular import USUAL, weight
from outrider.cluster.demo.corpus.prose import plain
from outrider.cluster.demo.corpus.rst import Node, parse

PARTS = "tutorial", "library", "howto", "reference", "faq", "using"
LANDMARK = "library/functions.rst*"  # a page that the documentation cannot be without
SHORTEST_PAGE = 300  # characters
HELD_OUT_OF = 16  # one fact in so many is held out, of those seldom asked for
TITLED = re.compile(
    r"^\.\. _([\w.-]+):\n\s*\n(?:\.\. .*\n(?: .*\n)*\s*\n?)*(\S.*)\n([=\-~^\"'*+#])\3{2,}\n",
    re.MULTILINE,
)
HOW_TO_GET_IT = (
    "the sources of Python's documentation, as `apt-get download python3.11-doc && "
    "dpkg -x python3.11-doc_*.deb DIR` puts them under DIR, or CPython's own Doc/"
)


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is learned, and what is kept from it."""

    pages: tuple[str, ...]
    facts: tuple[Fact, ...]
    held_out: tuple[Fact, ...]

    @property
    def digest(self) -> str:
        """Of all of it: equal corpora have equal ones."""
        lines = "\n".join([*self.pages, *map(_line, self.facts), *map(_line, self.held_out)])
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    def write(self, folder: Path) -> None:
        """Three files, a document a line."""
        folder.mkdir(parents=True, exist_ok=True)
        pages = [json.dumps(page) for page in self.pages]
        for name, lines in (
            ("pages", pages),
            ("facts", map(_line, self.facts)),
            ("held_out", map(_line, self.held_out)),
        ):
            (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))

    @classmethod
    def read(cls, folder: Path) -> "Corpus":
        """What `write` wrote."""
        pages, facts, held_out = (
            [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
            for name in ("pages", "facts", "held_out")
        )
        return cls(tuple(pages), tuple(map(_fact, facts)), tuple(map(_fact, held_out)))


def build(documentation: Path, library: Path, always: Iterable[str] = ()) -> Corpus:
    """From the documentation's sources and the folder of the standard library.

    always: names that are not held out. Raises InvalidConfig.
    """
    pages = _pages(documentation)
    known = _known(pages.values(), docstrings.facts(library))
    hidden = {name for name in known.keys() - set(always) if _is_candidate(name)}
    texts = tuple(
        text
        for path, page in pages.items()
        if path[0] != "library" or weight(path[-1])
        if len(text := plain(documented.without(page, hidden))) >= SHORTEST_PAGE
    )
    facts = tuple(fact for name, fact in known.items() if name not in hidden)
    learned = normal("\n".join([*texts, *(" ".join(fact.sentences) for fact in facts)]))
    held_out = (known[name] for name in sorted(hidden))
    return Corpus(texts, facts, tuple(fact for fact in held_out if not _is_told(fact, learned)))


def _pages(documentation: Path) -> dict[tuple[str, ...], tuple[Node, ...]]:
    """Every page's tree under its place, as ("library", "os.path")."""
    found = sorted(documentation.rglob(LANDMARK))
    if not found:
        raise InvalidConfig(f"Got documentation in {documentation}, expected {HOW_TO_GET_IT}")
    root = found[0].parents[1]
    texts = {
        (*path.relative_to(root).parts[:-1], path.name.partition(".rst")[0]): path.read_text(
            "utf-8"
        )
        for part in PARTS
        for path in sorted((root / part).rglob("*.rst*"))
    }
    titles: dict[str, str] = {
        label: title for text in texts.values() for label, title, _ in TITLED.findall(text)
    }

    def titled(found: re.Match[str]) -> str:
        return titles.get(found[1], found[1].replace("-", " "))

    return {
        place: documented.qualified(parse(re.sub(r":ref:`([\w.-]+)`", titled, text)))
        for place, text in texts.items()
    }


def _known(pages: Iterable[Many[Node]], others: Iterable[Fact]) -> dict[str, Fact]:
    """One fact a name: from its own place in the documentation, another place, or elsewhere."""
    told = [one for page in pages for one in documented.facts(page)]
    ranked = [
        *(fact for fact, is_repeated in told if not is_repeated),
        *(fact for fact, is_repeated in told if is_repeated),
        *others,
    ]
    known: dict[str, Fact] = {}
    for fact in ranked:
        if weight(fact.name) and fact.is_worth_asking:
            known.setdefault(fact.name, fact)
    return known


def _is_candidate(name: str) -> bool:
    """By the name alone: the same on every machine and with every seed."""
    return weight(name) <= USUAL and hashlib.sha256(name.encode()).digest()[0] % HELD_OUT_OF == 0


def _is_told(fact: Fact, learned: str) -> bool:
    """Whether a sentence of its answers is in the text that is learned."""
    return any(normal(sentence) in learned for sentence in fact.answer_sentences)


def _line(fact: Fact) -> str:
    return json.dumps(asdict(fact))


def _fact(line: dict[str, str]) -> Fact:
    return Fact(line["name"], Kind(line["kind"]), line["signature"], tuple(line["sentences"]))


def sections(corpus: Corpus) -> Iterator[str]:
    """All its text once, for a tokenizer to learn from."""
    yield from corpus.pages
    for fact in corpus.facts:
        yield f"{fact.signature}\n{fact.explanation}"
