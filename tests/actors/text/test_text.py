"""Text as it streams: whole characters, and stop strings that fall across tokens."""

import itertools

import architectures
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from outrider.actors.scheduling.request import FinishReason
from outrider.actors.text.detokenizer import Detokenizer
from outrider.actors.text.incremental_decoder import TokenBytes
from outrider.actors.text.stopping_criteria import StoppingCriteria
from outrider.actors.text.tokenizer import Tokenizer as DemoTokenizer


@pytest.fixture(scope="module")
def bytes_tokenizer():
    """Byte-level with one id per byte: every character beyond ASCII spans several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def run(
    tokenizer,
    text,
    stops=(),
    sizes=(1,),
    end_ids=(),
    max_tokens=10_000,
    ids=None,
    skips_special=True,
    includes_stop=False,
):
    """Feed a text in commits of the given sizes; the released pieces, kept ids and reason."""
    ids = ids_of(tokenizer, text) if ids is None else ids
    prompt = ids_of(tokenizer, "A prompt.")
    tokens = TokenBytes(tokenizer, skips_special=skips_special)
    stream = Detokenizer(tokens, prompt, stops, includes_stop=includes_stop)
    rules = StoppingCriteria(stream, end_ids)
    pieces, kept, at = [], [], 0
    for size in itertools.cycle(sizes):
        if at >= len(ids):
            return pieces, kept, None
        part, reason = rules.cut(tuple(ids[at : at + size]), max_tokens - len(kept))
        pieces.append(rules.text(part, reason))
        kept += part
        at += size
        if reason is not None:
            return pieces, kept, reason
    raise AssertionError("unreachable")


TEXT = "Grüße, 世界 👩‍👩‍👧! naïve café."


@pytest.mark.parametrize("sizes", [(1,), (2,), (5,), (1, 4, 2)])
def test_every_piece_is_whole_characters_and_together_they_are_the_text(bytes_tokenizer, sizes):
    pieces, _, _ = run(bytes_tokenizer, TEXT, sizes=sizes)
    assert "".join(pieces) == TEXT
    assert all("\ufffd" not in piece for piece in pieces)


def test_an_incomplete_character_at_the_end_shows_as_a_full_decode_shows_it(bytes_tokenizer):
    ids = ids_of(bytes_tokenizer, "ab界")[:-1]
    pieces, _, reason = run(bytes_tokenizer, "", ids=ids, max_tokens=len(ids))
    assert reason is FinishReason.LENGTH
    assert "".join(pieces) == bytes_tokenizer.decode(ids)


@pytest.mark.parametrize("sizes", [(1,), (3,), (7,), (100,)])
@pytest.mark.parametrize(
    ("stops", "expected"),
    [
        (("界",), "Grüße, 世"),
        ((", 世",), "Grüße"),
        (("zzz", "café"), TEXT[: TEXT.index("café")]),
        (("ß", "ü"), "Gr"),
        (("Gr",), ""),
        (("never",), TEXT),
    ],
)
def test_a_stop_string_ends_the_text_however_tokens_and_commits_fall(
    bytes_tokenizer, sizes, stops, expected
):
    pieces, kept, reason = run(bytes_tokenizer, TEXT, stops, sizes)
    if expected == TEXT:
        assert reason is None
    else:
        assert reason is FinishReason.STOP
        one_by_one = run(bytes_tokenizer, TEXT, stops, (1,))
        assert kept == one_by_one[1]  # the same token ends it
        assert "".join(pieces) == expected
    for piece in itertools.accumulate(pieces):
        assert expected.startswith(piece)  # nothing released is ever taken back


@pytest.mark.parametrize("sizes", [(1,), (3,), (100,)])
def test_the_stop_string_is_the_end_of_the_text_where_that_is_asked(bytes_tokenizer, sizes):
    for stop in (", 世", "café", "界"):
        pieces, _, reason = run(bytes_tokenizer, TEXT, (stop, "zz"), sizes, includes_stop=True)
        assert reason is FinishReason.STOP
        assert "".join(pieces) == TEXT[: TEXT.index(stop) + len(stop)]


def test_special_tokens_are_text_where_that_is_asked(bytes_tokenizer):
    ids = [i for part in ("ab", "<end>", "c") for i in ids_of(bytes_tokenizer, part)]
    for skips_special, text in ((True, "abc"), (False, "ab<end>c")):
        pieces, *_ = run(bytes_tokenizer, "", ids=[*ids, 9], skips_special=skips_special)
        assert "".join(pieces).startswith(text)


def test_what_might_begin_a_stop_string_is_held_back(bytes_tokenizer):
    pieces, _, _ = run(bytes_tokenizer, "ab<|en", ("<|end|>",))
    assert "".join(pieces) == "ab"


def test_what_was_held_back_comes_at_the_end(bytes_tokenizer):
    pieces, _, reason = run(bytes_tokenizer, "ab<|en", ("<|end|>",), max_tokens=6)
    assert reason is FinishReason.LENGTH
    assert "".join(pieces) == "ab<|en"


def test_an_end_id_is_kept_and_cuts_the_commit(bytes_tokenizer):
    end = bytes_tokenizer.token_to_id("<end>")
    ids = [*ids_of(bytes_tokenizer, "ab"), end, *ids_of(bytes_tokenizer, "cd")]
    pieces, kept, reason = run(bytes_tokenizer, "", ids=ids, sizes=(100,), end_ids=(end,))
    assert kept == ids[:3]
    assert "".join(pieces) == "ab"
    assert reason is FinishReason.STOP


def test_the_last_token_cuts_the_commit(bytes_tokenizer):
    pieces, kept, reason = run(bytes_tokenizer, "abcdef", sizes=(4,), max_tokens=3)
    assert (len(kept), "".join(pieces), reason) == (3, "abc", FinishReason.LENGTH)


def test_special_tokens_are_told():
    tokenizer = DemoTokenizer(architectures.DEMO / "target")
    ids = [*tokenizer.encode("def", adds_special=False), *sorted(tokenizer.special_ids)]
    flags = tokenizer.are_special(ids)
    assert flags == [each in tokenizer.special_ids for each in ids]
    assert True in flags
    assert False in flags
    texts = [tokenizer.token_text(each) for each, flag in zip(ids, flags, strict=True) if flag]
    assert set(texts) == {""}
