"""The tree of a page as text that reads well without being rendered."""

import re
from collections.abc import Iterator
from collections.abc import Sequence as Many

from outrider.cluster.demo.corpus.rst import OBJECTS, Directive, Node

NOTES = {
    "note": "Note:",
    "warning": "Warning:",
    "caution": "Caution:",
    "tip": "Tip:",
    "important": "Important:",
    "versionadded": "New in version {}:",
    "versionchanged": "Changed in version {}:",
    "deprecated": "Deprecated since version {}:",
    "deprecated-removed": "Deprecated since version {}:",
}
CODE = {"code-block", "sourcecode", "doctest", "testcode", "testoutput", "productionlist"}

ROLE = re.compile(r"(?::[\w+-]+)?:([\w+-]+):`([^`]*)`")
NAMED = re.compile(r"(.*?)\s*<[^<>]*>$", re.DOTALL)
LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?")
CODE_ROLES = set("func meth class mod attr exc data const keyword obj envvar option program "
                 "file samp code kbd command opcode pdbcmd source".split())  # fmt: skip
NUMBERED = {"pep": "PEP ", "rfc": "RFC "}
RULE = re.compile(r"^\s*([=~^\"'*+#.:-])\1{2,}[\s=~^\"'*+#.:-]*$")
TABLE = re.compile(r"^\s*[+|].*[+|]$")
UNSPOKEN = re.compile(r"[ >#|]|[*+-] |\d+\. ")
FIELD = re.compile(r"^:[\w ]+:(?!`)")
SOURCE = re.compile(r"^\*\*Source code:\*\*.*(?:\n\S.*)*", re.MULTILINE)


def plain(nodes: Many[Node]) -> str:
    """The text of nodes."""
    text = SOURCE.sub("", "\n".join(_lines(nodes)))
    return re.sub(r"\n{3,}", "\n\n", inline(text)).strip("\n")


def paragraphs(nodes: Many[Node]) -> list[str]:
    """What is said in sentences, each paragraph in a line: no code, no lists, no directives."""
    text = plain([node if isinstance(node, str) else "" for node in nodes])
    return spoken(text.split("\n\n"))


def spoken(parts: Many[str]) -> list[str]:
    """Those parts of a text that are sentences, each in a line."""
    return [" ".join(part.split()) for part in parts if part.strip() and not UNSPOKEN.match(part)]


def inline(text: str) -> str:
    """Without roles and links; names of code in backticks."""
    text = re.sub(r"`\\(?=\w)", "`", text)  # what joins a role to a letter behind it
    text = re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
    text = LINK.sub(r"\1", ROLE.sub(_role, text))
    text = re.sub(r"`([^`<>]+)`__?(?!\w)", r"\1", text)
    text = re.sub(r" ?\[[\w#*]+\]_(?!\w)", "", text)
    text = re.sub(r"\|(release|version)\|", "3", text)
    return re.sub(r"\\([*_`|\\ ])", lambda found: found[1].strip(), text)


def _role(found: re.Match[str]) -> str:
    role, text = found[1].lower(), " ".join(found[2].split())
    if named := NAMED.match(text):
        return named[1]
    text = text.lstrip("!.")
    if text.startswith("~"):
        text = text.rpartition(".")[2]
    if role in NUMBERED:
        return NUMBERED[role] + text
    return f"`{text}`" if role in CODE_ROLES else text


def _lines(nodes: Many[Node]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Directive):
            yield from (" " * node.indent + line if line else "" for line in _block(node))
        elif node.strip() != "::" and not any(
            pattern.match(node) for pattern in (RULE, TABLE, FIELD)
        ):
            yield re.sub(r"::$", ":", node)


def _block(directive: Directive) -> Iterator[str]:
    """A directive that is read; of others there is nothing."""
    if directive.name in OBJECTS:
        yield from directive.arguments
    elif directive.name in NOTES:
        yield _heading(directive)
    elif directive.name not in CODE:
        return
    yield from (f"    {line}" if line else "" for line in _lines(directive.body))


def _heading(note: Directive) -> str:
    """Note:, or Changed in version 3.6: and what is said in the same line."""
    heading, argument = NOTES[note.name], note.arguments[0]
    if "{}" in heading:
        version, _, argument = argument.partition(" ")
        heading = heading.format(version)
    if not argument and not any(note.body):
        return heading.replace(":", ".")
    return f"{heading} {argument}".rstrip()
