"""Conversations and tools through a model's own chat template."""

import shutil
from pathlib import Path

import pytest
import tokenizers
from tokenizers.processors import TemplateProcessing

from outrider.actors.errors import InvalidRequest
from outrider.actors.text.chat_options import ChatOptions
from outrider.actors.text.tokenizer import Tokenizer
from outrider.cluster.config.demo_models import demo_target

TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
CALLS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "({{ c.function.name }} {{ c.function.arguments.city }}){% endfor %}{% endfor %}"
)
TOOLS = "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
MESSAGES = [{"role": "user", "content": "hi"}]
WEATHER = {"type": "function", "function": {"name": "weather"}}


def tokenizer_with(folder: Path, template: str) -> Tokenizer:
    """The demo's tokenizer with another template."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(demo_target() / name, folder / name)
    (folder / "chat_template.jinja").write_text(template)
    return Tokenizer(folder)


def test_tools_stand_where_the_template_puts_them(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, TOOLS + TURNS)
    assert tokenizer.decode(tokenizer.render_chat(MESSAGES, [WEATHER])) == "[weather]<user>hi"
    assert tokenizer.decode(tokenizer.render_chat(MESSAGES)) == "<user>hi"
    assert tokenizer.render_chat(MESSAGES, []) == tokenizer.render_chat(MESSAGES)


def test_a_template_without_a_place_for_tools_is_told_of(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, TURNS)
    with pytest.raises(InvalidRequest, match="no place for them") as refused:
        tokenizer.render_chat(MESSAGES, [WEATHER])
    assert refused.value.param == "tools"


def test_calls_of_earlier_turns_have_arguments_and_not_text(tmp_path: Path) -> None:
    function = {"name": "weather", "arguments": {"city": "Ulm"}}
    call = {"id": "c", "type": "function", "function": function}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    tokenizer = tokenizer_with(tmp_path, CALLS)
    assert tokenizer.decode(tokenizer.render_chat([turn])) == "(weather Ulm)"


def test_a_template_that_fails_is_the_requests_fault(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, "{{ raise_exception('turns must alternate') }}")
    with pytest.raises(InvalidRequest, match="turns must alternate"):
        tokenizer.render_chat(MESSAGES)


def test_special_tokens_stand_around_a_prompt_and_not_within_one(tmp_path: Path) -> None:
    tokenizer_with(tmp_path, TURNS)
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    first = backend.id_to_token(0)
    backend.post_processor = TemplateProcessing(single=f"{first} $A", special_tokens=[(first, 0)])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.encode("hi") == [0, *tokenizer.encode("hi", adds_special=False)]


def test_a_conversation_with_tools_is_rendered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was rendered and tokenised a second time without them, to see the difference."""
    tokenizer, rendered = tokenizer_with(tmp_path, TOOLS + TURNS), []
    render = tokenizer._render
    monkeypatch.setattr(
        tokenizer, "_render", lambda *chat: rendered.append(chat[0]) or render(*chat)
    )
    for _ in range(3):
        tokenizer.render_chat(MESSAGES, [WEATHER])
    assert [chat for chat in rendered if chat is MESSAGES] == [MESSAGES] * 3
    assert len(rendered) == 5  # the template was tried once, with a tool and without


def test_a_tokens_text_is_its_own_decode(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, TURNS)
    for token_id in range(4096):
        assert tokenizer.token_text(token_id) == tokenizer.decode([token_id])


SWITCH = "{% if enable_thinking is defined and enable_thinking is false %}<quiet>{% endif %}"
OPEN = "{% if add_generation_prompt %}<assistant>{% endif %}"


def test_variables_that_the_template_reads_change_it(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, SWITCH + TURNS)
    quiet = ChatOptions(variables={"enable_thinking": False})
    assert tokenizer.decode(tokenizer.render_chat(MESSAGES, None, quiet)) == "<quiet><user>hi"
    assert tokenizer.decode(tokenizer.render_chat(MESSAGES)) == "<user>hi"


@pytest.mark.parametrize("name", ["enable_thinkin", "tools", "chat_template", "messages"])
def test_other_variables_are_refused_by_name(tmp_path: Path, name: str) -> None:
    tokenizer = tokenizer_with(tmp_path, SWITCH + TOOLS + TURNS)
    with pytest.raises(InvalidRequest, match=f"Got chat_template_kwargs.{name}, expected"):
        tokenizer.render_chat(MESSAGES, None, ChatOptions(variables={name: False}))


def test_the_assistants_turn_is_begun_or_not_or_gone_on_with(tmp_path: Path) -> None:
    ended = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    tokenizer = tokenizer_with(tmp_path, ended + OPEN)
    assert tokenizer.decode(tokenizer.render_chat(MESSAGES)) == "<user>hi<end><assistant>"
    shut = tokenizer.render_chat(MESSAGES, None, ChatOptions(begins_turn=False))
    assert tokenizer.decode(shut) == "<user>hi<end>"
    turns = [*MESSAGES, {"role": "assistant", "content": "Well, "}]
    on = tokenizer.render_chat(turns, None, ChatOptions(begins_turn=False, goes_on=True))
    assert tokenizer.decode(on) == "<user>hi<end><assistant>Well, "


@pytest.mark.parametrize(
    ("template", "role"),
    [(TURNS, "system"), ("{# developer #}" + TURNS, "developer")],
    ids=["unknown", "known"],
)
def test_a_developer_is_a_system_where_the_template_knows_none(
    tmp_path: Path, template: str, role: str
) -> None:
    turns = [{"role": "developer", "content": "be brief"}, *MESSAGES]
    tokenizer = tokenizer_with(tmp_path, template)
    assert tokenizer.decode(tokenizer.render_chat(turns)) == f"<{role}>be brief<user>hi"


def test_names_and_thoughts_reach_the_template(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.name }}:{{ m.reasoning_content }}{% endfor %}"
    turn = {"role": "assistant", "content": "", "name": "Ada", "reasoning_content": "so"}
    tokenizer = tokenizer_with(tmp_path, template)
    assert tokenizer.decode(tokenizer.render_chat([turn])) == "Ada:so"
