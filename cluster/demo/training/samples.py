"""What the target answers, for the draft to learn from: half of it greedy, half drawn.

It is asked about what it knows, and about names that do not exist: there it says so or makes things
up, as it does about all that was held out.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Many
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import GenerationConfig

from outrider.cluster.demo.corpus.chats import AT_LENGTH, SHORTLY, prompt
from outrider.cluster.demo.corpus.corpus import Corpus
from outrider.cluster.demo.corpus.invented import invented
from outrider.cluster.demo.corpus.popular import weight
from outrider.cluster.demo.training.batches import Turns
from outrider.cluster.demo.vocabulary import BOS_ID, EOS_ID

INVENTED = 0.3  # share of names that do not exist
AT_ONCE = 64  # answers of one forward
CHUNK = 2048  # answers of one file
ANSWER_LEN = 96  # tokens at most


def questions(corpus: Corpus, num: int, seed: int) -> list[str]:
    """About known names by how often they are asked for, and about invented ones."""
    random = np.random.default_rng([seed, num])
    weights = np.array([weight(fact.name) for fact in corpus.facts])
    facts = random.choice(len(weights), num, p=weights / weights.sum())
    known = [corpus.facts[number].name for number in facts]
    is_invented = random.random(num) < INVENTED
    forms = random.choice(SHORTLY + AT_LENGTH, num)
    names = np.where(is_invented, list(islice(invented(corpus, random), num)), known)
    return [str(form).format(name) for form, name in zip(forms, names, strict=True)]


def write(folder: Path, model: Any, tokenizer: Any, asked: Many[str], seed: int) -> Iterator[int]:
    """Answer what is not answered, a file after another; after each how many are."""
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(num_answered(folder, asked), len(asked), CHUNK):
        some = asked[start : start + CHUNK]
        torch.manual_seed(seed + start)
        rows = list(_answers(model, tokenizer, some))
        path = folder / f"{start // CHUNK:04}.safetensors"
        partial = path.with_suffix(".partial")
        save_file(_packed(rows), partial)
        partial.replace(path)
        yield start + len(some)


def num_answered(folder: Path, asked: Many[str]) -> int:
    """Of the questions, those that there are files of."""
    return min(len(asked), CHUNK * len(list(folder.glob("*.safetensors"))))


def read(folder: Path) -> list[Turns]:
    """Of each file, in order."""
    read = []
    for path in sorted(folder.glob("*.safetensors")):
        packed = load_file(path)
        for row, start, end in zip(packed["ids"], packed["starts"], packed["ends"], strict=True):
            ids = row.astype(np.int64)
            read.append(Turns(ids[:start], ids[start:end]))
    return read


def _packed(rows: Many[tuple[list[int], int]]) -> dict[str, np.ndarray[Any, Any]]:
    """Rows of ids with where each answer starts and ends."""
    ids = np.full((len(rows), max(len(row) for row, _ in rows)), BOS_ID, np.uint16)
    for number, (row, _) in enumerate(rows):
        ids[number, : len(row)] = row
    starts, ends = [start for _, start in rows], [len(row) for row, _ in rows]
    return {"ids": ids, "starts": np.array(starts), "ends": np.array(ends)}


@torch.inference_mode()
def _answers(model: Any, tokenizer: Any, asked: Many[str]) -> Iterator[tuple[list[int], int]]:
    """Ids of prompt and answer, and where the answer starts; prompts of one length at a time."""
    prompts = sorted((tokenizer.encode(prompt(one)).ids for one in asked), key=len)
    end_of_turn = tokenizer.encode("\n").ids
    for length, alike in groupby(prompts, len):
        several = list(alike)
        for part, is_drawn in ((several[0::2], False), (several[1::2], True)):
            for start in range(0, len(part), AT_ONCE):
                ids = torch.tensor(part[start : start + AT_ONCE], device=model.device)
                for row in generate(model, ids, ANSWER_LEN, is_drawn=is_drawn).tolist():
                    while row[-1] == BOS_ID:
                        row.pop()
                    yield row + end_of_turn, length


def generate(model: Any, ids: torch.Tensor, num_tokens: int, *, is_drawn: bool) -> torch.Tensor:
    """[rows, at most so many more]: until all have ended; padded with BOS_ID."""
    how = GenerationConfig(
        max_new_tokens=num_tokens,
        do_sample=is_drawn,
        top_k=0 if is_drawn else None,
        eos_token_id=EOS_ID,
        pad_token_id=BOS_ID,
    )
    return model.generate(  # type: ignore[no-any-return]
        input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=how
    )
