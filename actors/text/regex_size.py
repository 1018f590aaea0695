"""How large a regular expression is once its counted repeats are written out.

Fifteen bytes, `(a{1000}){1000}`, are a million characters: whoever follows such a text holds
everybody up. Reads the syntax that engines have in common; what it takes too literally counts a
little more or less.
"""

import re

MAX_SIZE = 50_000  # characters and classes, repeats written out
COUNTED = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
ESCAPED = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|.)", re.DOTALL)


def check_size(pattern: str) -> None:
    """Raises ValueError for one that is too large."""
    size = regex_size(pattern)
    if size > MAX_SIZE:
        raise ValueError(
            f"it has {size} characters with its repeats written out, expected at most {MAX_SIZE}"
        )


def regex_size(pattern: str) -> int:
    """Its characters and classes, each as often as counted repeats around it say."""
    sizes = [0]  # of the groups that are open, the outermost first
    last, at = 0, 0  # the size of what stands before a repeat
    while at < len(pattern):
        letter, end = pattern[at], at + 1
        if letter == "(":
            sizes.append(0)
            last = 0
        elif letter == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif letter == "{" and (counted := COUNTED.match(pattern, at)):
            least, comma, most = counted.groups()
            times = int(most or least) + (1 if comma and not most else 0)
            sizes[-1] += last * (times - 1)
            last, end = last * times, counted.end()
        elif letter not in "*+?|^$":
            last = 1
            sizes[-1] += 1
            found = CLASS.match(pattern, at) if letter == "[" else ESCAPED.match(pattern, at)
            end = found.end() if found and letter in "[\\" else end
        at = end
    return sum(sizes)
