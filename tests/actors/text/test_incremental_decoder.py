"""Any ids of any tokenizer: what streams is what a decode of the whole shows, stray bytes too."""

import random
from functools import partial

import pytest
import real_tokenizers
from architectures import DEMO
from tokenizers import Tokenizer, decoders, models
from tokenizers.decoders import DecodeStream

from outrider.actors.text.detokenizer import Detokenizer
from outrider.actors.text.incremental_decoder import IncrementalDecoder, TokenBytes

NUM_TEXTS = 400
BYTE_LEVEL = {
    "demo": lambda _: Tokenizer.from_file(str(DEMO / "target" / "tokenizer.json")),
    "tekken": real_tokenizers.tekken,
    "qwen": real_tokenizers.qwen,
}


@pytest.fixture(scope="module", params=BYTE_LEVEL)
def byte_level(request, tmp_path_factory):
    return BYTE_LEVEL[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def fallback(tmp_path_factory):
    return real_tokenizers.mistral_v1(tmp_path_factory.mktemp("mistral"))


def texts(tokens, seed=1):
    """Random ids, every other one a single byte: stray, cut and whole characters."""
    rng, size = random.Random(seed), tokens.backend.get_vocab_size()
    single = [i for i in range(size) if (found := tokens.of(i)) and len(found) == 1]
    assert len(single) == 256
    for _ in range(NUM_TEXTS):
        choices = (single if rng.random() < 0.5 else range(size) for _ in range(rng.randint(1, 16)))
        yield [rng.choice(each) for each in choices]


def streamed(tokens, prompt, ids):
    decoder = IncrementalDecoder(tokens, prompt)
    return "".join(map(decoder.step, ids)) + decoder.finish()


def test_byte_level_text_is_the_decode_of_the_whole(byte_level):
    tokens, prompt = TokenBytes(byte_level), byte_level.encode("A prompt.").ids
    before = byte_level.decode(prompt)
    for ids in texts(tokens):
        assert before + streamed(tokens, prompt, ids) == byte_level.decode(prompt + ids), ids


def test_byte_fallback_text_is_the_decode_of_the_library_that_made_it(fallback):
    """Of `tokenizers` too, where no run of bytes mixes characters with stray bytes."""
    tokens, library = TokenBytes(fallback), real_tokenizers.sentencepiece_v1()
    prompt, num_alike = library.encode("A prompt."), 0
    before = library.decode(prompt)
    for ids in texts(tokens):
        text = before + streamed(tokens, prompt, ids)
        assert text == library.decode(prompt + ids), ids
        num_alike += text == fallback.decode(prompt + ids)
    assert num_alike > NUM_TEXTS / 10


def test_what_a_decode_stream_cannot_take_is_text(fallback):
    """A character in bytes, a stray byte, a letter."""
    tokens, [letter] = TokenBytes(fallback), [fallback.token_to_id("a")]
    ids = [fallback.token_to_id(f"<0x{byte:02X}>") for byte in (0xE4, 0xBD, 0xA0, 0xFF)]
    with pytest.raises(Exception, match="Invalid prefix"):
        list(map(partial(DecodeStream([letter]).step, fallback), [*ids, letter]))
    assert streamed(tokens, [letter], [*ids, letter]) == "你\ufffda"


@pytest.mark.parametrize("text", ["secret 世", "secret 👩‍👩‍👧", "é", "a\n"])
def test_a_prompt_cut_inside_a_character_shows_none_of_its_text(byte_level, fallback, text):
    for tokenizer in (byte_level, fallback):
        tokens = TokenBytes(tokenizer)
        ids = [i for i in tokenizer.encode(text).ids if tokens.of(i) != b""]
        more = tokenizer.encode("b").ids[-1]
        for at in range(len(ids)):
            got = streamed(tokens, ids[:at], [*ids[at:], more])
            assert "secret" not in got or at == 0
            assert got.replace(" ", "").endswith("b")
            assert "\ufffd" not in got


def test_a_character_that_the_prompt_began_is_told_once_it_is_whole(byte_level):
    tokens, single = TokenBytes(byte_level), {}
    for token_id in range(byte_level.get_vocab_size()):
        found = tokens.of(token_id)
        if found and len(found) == 1:
            single[found[0]] = token_id
    ids = [single[byte] for byte in "ret 世".encode()]
    rest = [single[byte] for byte in b"abc"]
    assert streamed(tokens, ids[:-1], [ids[-1], *rest]) == "世abc"
    assert streamed(tokens, ids[:-2], [ids[-2], ids[-1], *rest]) == "世abc"
    assert streamed(tokens, ids[:-1], rest) == "abc"  # the prompt's own half shows in the prompt
    stopping = Detokenizer(tokens, ids[:-1], ("ret",))
    assert not any(stopping.push(token_id) for token_id in [ids[-1], *rest])


WORDS = ["[UNK]", "a", "##b", "the", "##s", ".", "'", "▁a", "▁the", "▁", "<0xZZ>"]


@pytest.mark.parametrize(
    "decoder",
    [decoders.WordPiece(), decoders.Metaspace(), decoders.BPEDecoder("s"), decoders.Fuse(), None],
)
def test_other_tokenizers_text_is_the_decode_of_the_whole(decoder):
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    if decoder is not None:
        tokenizer.decoder = decoder
    tokens, rng = TokenBytes(tokenizer), random.Random(1)
    for _ in range(NUM_TEXTS):
        ids = [rng.randrange(1, len(WORDS)) for _ in range(rng.randint(2, 9))]
        for num in (0, 1):  # of the prompt
            before = tokenizer.decode(ids[:num])
            assert before + streamed(tokens, ids[:num], ids[num:]) == tokenizer.decode(ids), ids


def test_special_tokens_are_no_text(byte_level):
    special = byte_level.get_vocab_size()
    byte_level.add_special_tokens(["<|cut|>"])
    tokens = TokenBytes(byte_level)
    ids = byte_level.encode("ab<|cut|>cd").ids
    assert special in ids
    assert streamed(tokens, [special], ids) == "abcd"


def test_a_tokens_own_text_is_its_decode(byte_level, fallback):
    """A microsecond each, where the decode takes ten: answers tell of thousands of them."""
    for backend in (byte_level, fallback):
        tokens, rng = TokenBytes(backend), random.Random(3)
        for token_id in rng.sample(range(backend.get_vocab_size()), 3000):
            assert tokens.text(token_id) == backend.decode([token_id]), token_id
