"""What people ask a chat model, in ten kinds (chats.json)."""

import itertools
import json
from pathlib import Path

CHATS = json.loads(Path(__file__).with_name("chats.json").read_text("utf-8"))
KINDS = [kind["kind"] for kind in CHATS]


def chat(kind, number):
    """The messages of one; every `number` is another, as long as its words last."""
    asks, about = kind["ask"], kind["about"]
    words = {
        "ask": asks[number % len(asks)],
        "about": about[(number // len(asks) + number) % len(about)],
    }
    roles = itertools.cycle(("user", "assistant"))
    turns = zip(roles, kind["turns"], strict=False)
    return [{"role": role, "content": text.format(**words)} for role, text in turns]


def chats():
    """(kind, messages), every kind in turn, for ever."""
    for number in itertools.count():
        kind = CHATS[number % len(CHATS)]
        yield kind["kind"], chat(kind, number // len(CHATS))


def chats_of(kind, num):
    """The first so many of one kind."""
    [found] = [each for each in CHATS if each["kind"] == kind]
    return [chat(found, number) for number in range(num)]
