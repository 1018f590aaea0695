"""The target's tokenizer, and whether the draft speaks the same ids."""

import inspect
import re
from collections.abc import Mapping
from collections.abc import Sequence as Many
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from outrider.actors.errors import InvalidRequest, ModelRefused, VocabularyMismatch
from outrider.actors.text.chat_options import USUAL, ChatOptions
from outrider.actors.text.detokenizer import Detokenizer
from outrider.actors.text.incremental_decoder import TokenBytes

A_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks something up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}


class Tokenizer:
    """Text to ids and back, with the model's own chat template."""

    def __init__(self, path: Path) -> None:
        """Raises ModelRefused."""
        self._tokenizer = _load(path)
        backend = self._tokenizer.backend_tokenizer
        self._token_bytes = TokenBytes(backend)
        self._with_special = TokenBytes(backend, skips_special=False)
        self._token_texts: dict[int, str] = {}

    @property
    def vocabulary(self) -> dict[str, int]:
        """Token to id, added tokens included."""
        return dict(self._tokenizer.get_vocab())

    @cached_property
    def longest_token(self) -> int:
        """Characters that one token stands for, at most."""
        return max(map(len, self._tokenizer.get_vocab()))

    @property
    def special_ids(self) -> set[int]:
        """Of tokens that are no text."""
        return set(self._tokenizer.all_special_ids)

    def are_special(self, ids: Many[int]) -> list[bool]:
        """Of each: whether it is left out of a text, as EOS is."""
        return [each in self._token_bytes.special_ids for each in ids]

    @cached_property
    def special_tokens(self) -> dict[int, str]:
        """What tokens that are no text look like, by id."""
        found = zip(
            self._tokenizer.all_special_ids, self._tokenizer.all_special_tokens, strict=True
        )
        return dict(found)

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    @property
    def chat_template(self) -> str:
        """The text of it, or of all of them; empty where there is none."""
        template = self._tokenizer.chat_template or ""
        return "\n".join(template.values()) if isinstance(template, dict) else template

    @property
    def response_template(self) -> Mapping[str, Any] | None:
        """The model's own word on how its answers are read, as transformers has it."""
        return getattr(self._tokenizer, "response_template", None)

    def encode(self, text: str, adds_special: bool = True) -> list[int]:
        """The ids of a text, with the special tokens that the model's tokenizer adds."""
        return list(self._tokenizer(text, add_special_tokens=adds_special)["input_ids"])

    def decode(self, ids: Many[int]) -> str:
        """The text of ids, special tokens left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def decode_all(self, ids: Many[int]) -> str:
        """The text of ids, special tokens with it."""
        return str(self._tokenizer.decode(list(ids)))

    def token_text(self, token_id: int) -> str:
        """One token's text by itself; empty for a special one."""
        text = self._token_texts.get(token_id)
        if text is None:
            text = self._token_texts[token_id] = self._token_bytes.text(token_id)
        return text

    def reads(self, name: str) -> bool:
        """Whether the chat template has anything to do with a variable of this name."""
        return re.search(rf"\b{re.escape(name)}\b", self.chat_template) is not None

    def render_chat(
        self,
        messages: Many[Mapping[str, Any]],
        tools: Many[Mapping[str, Any]] | None = None,
        options: ChatOptions = USUAL,
    ) -> list[int]:
        """The ids of a conversation, by default ready for the assistant's turn.

        A developer's turn is a system's where the template knows no other. Raises InvalidRequest.
        """
        if not self.has_chat_template:
            raise InvalidRequest(
                "Got chat messages for a model without a chat template, "
                "expected a prompt (/v1/completions)",
                "messages",
            )
        if tools and not self.has_place_for_tools:
            raise InvalidRequest(
                "Got tools for a model whose chat template has no place for them, expected none",
                "tools",
            )
        for name in options.variables:
            if name in RESERVED or not self.reads(name):
                raise InvalidRequest(
                    f"Got chat_template_kwargs.{name}, expected a variable that the model's chat "
                    "template reads, and no field of its own",
                    "chat_template_kwargs",
                )
        return self._render(messages, tools, options)

    @cached_property
    def has_place_for_tools(self) -> bool:
        """Whether the chat template writes them anywhere."""
        chat = [{"role": "user", "content": "Hello"}]
        try:
            return self._render(chat, (A_TOOL,), USUAL) != self._render(chat, None, USUAL)
        except InvalidRequest:
            return True  # what it says to the request's own chat is more to the point

    def _render(
        self,
        messages: Many[Mapping[str, Any]],
        tools: Many[Mapping[str, Any]] | None,
        options: ChatOptions,
    ) -> list[int]:
        turns = [dict(message) for message in messages]
        for turn in turns:
            if turn["role"] == "developer" and not self.reads("developer"):
                turn["role"] = "system"
        try:
            ids = self._tokenizer.apply_chat_template(
                turns,
                tools=[dict(tool) for tool in tools] if tools else None,
                add_generation_prompt=options.begins_turn,
                continue_final_message=options.goes_on,
                return_dict=False,
                **options.variables,
            )
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            raise InvalidRequest(f"The chat template refused: {error}", "messages") from error
        return list(ids)

    def stream(
        self,
        prompt_ids: Many[int],
        stops: Many[str],
        *,
        includes_stop: bool = False,
        skips_special: bool = True,
    ) -> Detokenizer:
        """The text of one sequence, as it comes."""
        tokens = self._token_bytes if skips_special else self._with_special
        return Detokenizer(tokens, prompt_ids, stops, includes_stop=includes_stop)


# What a request has fields of its own for, or what is not its business.
RESERVED = frozenset(inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters) | {
    "messages"
}


def check_vocabularies(target: Tokenizer, draft: Tokenizer) -> None:
    """Same token, same id, on both sides. Raises VocabularyMismatch with the first difference.

    Compares the maps, not the sizes: padded embeddings are the models' own business.
    """
    ours, theirs = target.vocabulary, draft.vocabulary
    if ours == theirs:
        return
    by_id = {index: token for token, index in ours.items()}
    by_id_theirs = {index: token for token, index in theirs.items()}
    first = min(
        index
        for index in by_id.keys() | by_id_theirs.keys()
        if by_id.get(index) != by_id_theirs.get(index)
    )
    raise VocabularyMismatch(
        f"Draft and target speak different ids: target has {len(ours)} tokens, draft "
        f"{len(theirs)}; first difference at id {first}: target {by_id.get(first)!r}, "
        f"draft {by_id_theirs.get(first)!r}. Accepted: a draft with the target's own token map"
    )


def _load(path: Path) -> PreTrainedTokenizerFast:
    if not (path / "tokenizer.json").is_file():
        raise ModelRefused(f"Got no tokenizer.json in {path}, expected a fast tokenizer there")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, trust_remote_code=False, local_files_only=True, use_fast=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelRefused(f"The tokenizer of {path} cannot be loaded: {error}") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelRefused(f"Got a {type(tokenizer).__name__} in {path}, expected a fast tokenizer")
    return tokenizer
