"""Everything that a request can ask of the sampler, two and two together, and all it is told."""

import json
from dataclasses import replace

from batches import requests, speculating

from outrider.actors.scheduling.sampling_params import (
    Grammar,
    GrammarKind,
    SamplingParams,
    SpeculationParams,
    VerificationMode,
)

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["name"],
    }
)
GRAMMARS = [
    None,
    Grammar(GrammarKind.JSON, SCHEMA),
    Grammar(GrammarKind.REGEX, "[a-z ]{4,40}"),
    Grammar(GrammarKind.CHOICE, json.dumps(["yes", "no", "of course not"])),
    Grammar(GrammarKind.LARK, 'start: "def " /[a-z_]+/ "(" /[a-z, ]*/ "):"'),
]
PARAMETERS = {
    "temperature": [0.0, 0.7, 1.0],
    "top_k": [0, 5],
    "top_p": [1.0, 0.8],
    "min_p": [0.0, 0.1],
    "repetition_penalty": [1.0, 1.3, 0.8],
    "frequency_penalty": [0.0, 1.5, -0.7],
    "presence_penalty": [0.0, 2.0],
    "logit_bias": [(), ((11, 4.0), (200, -100.0), (300, 2.5))],
    "min_tokens": [0, 6],
    "ignores_eos": [True, False],
    "stop_token_ids": [(), tuple(range(100, 700))],
    "stop": [(), ("the", "e\n")],
    "num_top_logprobs": [0, 3],
    "prompt_logprobs": [None, 0, 2],
    "grammar": GRAMMARS,
    "k": [None, 1, 4],
    "prediction": [False, True],
}


async def told(engine, request):
    """All that a client is told, but for how it was drafted."""
    chunks = [chunk async for chunk in engine.generate(request)]
    return {
        "ids": [i for chunk in chunks for i in chunk.token_ids],
        "text": "".join(chunk.text for chunk in chunks),
        "logprobs": [p for chunk in chunks for p in chunk.logprobs],
        "top": [row for chunk in chunks for row in chunk.top_logprobs],
        "prompt": [row for chunk in chunks for row in chunk.prompt_logprobs],
        "why": chunks[-1].finish_reason,
    }


def batch_of(cases, vocab):
    """One request a case: plain, and as the case wants it speculated on."""
    plain, asked = [], []
    for case, request in zip(cases, requests(len(cases), {}, vocab, seed=3), strict=True):
        sampling = {name: case[name] for name in case if name not in ("k", "prediction")}
        is_greedy = case["temperature"] == 0
        request = replace(request, sampling=SamplingParams(max_tokens=14, **sampling))
        plain.append(speculating(request, is_enabled=False))
        mode = VerificationMode.REJECTION if is_greedy else VerificationMode.COUPLED
        speculation = SpeculationParams(k=case["k"], verification=mode)
        asked.append((replace(request, speculation=speculation), case["prediction"]))
    return plain, asked
