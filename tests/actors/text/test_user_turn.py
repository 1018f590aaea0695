"""Where a user's words begin and end in a chat."""

from types import SimpleNamespace

import pytest
from architectures import DEMO

from outrider.actors.errors import InvalidRequest
from outrider.actors.text.tokenizer import Tokenizer
from outrider.actors.text.user_turn import UserTurn


def test_a_users_turn_begins_and_ends_where_the_template_says():
    tokenizer = Tokenizer(DEMO / "target")
    turn = UserTurn.of(tokenizer)
    question = "What does str.split do?"
    spoken = tokenizer.encode(question, adds_special=False)
    ids = tokenizer.render_chat([{"role": "user", "content": question}])
    assert tuple(ids) == (*turn.opened, *spoken, *turn.closed)
    assert tokenizer.decode(turn.opened).strip() == ""


@pytest.mark.parametrize(
    ("one", "other", "opened", "closed"),
    [
        ([1, 2, 7, 3, 4], [1, 2, 8, 9, 3, 4], (1, 2), (3, 4)),
        ([7], [8], (), ()),
        ([7, 3], [8, 3], (), (3,)),
    ],
)
def test_words_of_any_length(one, other, opened, closed):
    chats = iter([one, other])
    tokenizer = SimpleNamespace(render_chat=lambda messages: next(chats))
    assert UserTurn.of(tokenizer) == UserTurn(opened, closed)


def test_a_model_that_does_not_chat_has_none(monkeypatch):
    tokenizer = Tokenizer(DEMO / "target")
    monkeypatch.setattr(type(tokenizer), "has_chat_template", False)
    with pytest.raises(InvalidRequest, match="without a chat template"):
        UserTurn.of(tokenizer)
