"""Tokenizers of models that people serve, from packages that carry them: made by transformers' own
converters, since nothing is loaded from a hub.
"""

import importlib.util
import json
import shutil
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer
from transformers import LlamaTokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter


def package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


MISTRAL = package("mistral_common") / "data"
SENTENCEPIECE = MISTRAL / "tokenizer.model.v1"


def mistral_v1(folder: Path) -> Tokenizer:
    """32,000 pieces with byte fallback (Mistral 7B)."""
    shutil.copy(SENTENCEPIECE, folder / "tokenizer.model")
    return LlamaTokenizer.from_pretrained(folder).backend_tokenizer


def sentencepiece_v1() -> sentencepiece.SentencePieceProcessor:
    """The library that wrote it."""
    return sentencepiece.SentencePieceProcessor(model_file=str(SENTENCEPIECE))


def tekken(folder: Path, num_tokens: int | None = None) -> Tokenizer:
    """130,072 byte-level tokens (Mistral Nemo), or the first so many."""
    tekken = json.loads((MISTRAL / "tekken_240911.json").read_text())
    config, file = tekken["config"], folder / "tekken.tiktoken"
    num = num_tokens or config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = (f"{each['token_bytes']} {each['rank']}" for each in tekken["vocab"][:num])
    file.write_text("\n".join(ranks))
    return TikTokenConverter(vocab_file=str(file), pattern=config["pattern"]).converted()


def qwen(_: Path) -> Tokenizer:
    """151,643 byte-level tokens (Qwen 2 and 3)."""
    file = package("dashscope") / "resources" / "qwen.tiktoken"
    return TikTokenConverter(vocab_file=str(file)).converted()
