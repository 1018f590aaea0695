"""The fixed questions put to a pair through the engine, greedily; the answers as a text to read."""

from collections.abc import Sequence as Many
from dataclasses import dataclass

from outrider.actors.engine.engine import Engine
from outrider.actors.scheduling.request import FinishReason, Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.cluster.demo.questions import Question, Verdict, judge, questions

ANSWER_LEN = 200  # tokens at most
HEADING = """\
What the demo's target answers to {num} fixed questions at temperature 0, as it is.

{right} of {num} give the documented signature and its first sentence word for word (✓; the others
say what is not so); {straight} of {num} come to an end without going in circles.
"""


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """One of them."""

    question: Question
    text: str
    verdict: Verdict


async def ask(engine: Engine) -> list[DemoAnswer]:
    """All questions, one after another."""
    tokenizer = engine.tokenizer
    sampling = SamplingParams(0.0, max_tokens=ANSWER_LEN)
    answers = []
    for question in questions():
        prompt = tokenizer.render_chat([{"role": "user", "content": question.question}])
        request = Request(tuple(prompt), sampling, seed=0)
        chunks = [chunk async for chunk in engine.generate(request)]
        ids = [token for chunk in chunks for token in chunk.token_ids]
        text = "".join(chunk.text for chunk in chunks)
        has_ended = chunks[-1].finish_reason is FinishReason.STOP
        verdict = judge(question, text, ids, has_ended=has_ended)
        answers.append(DemoAnswer(question, text, verdict))
    return answers


def page(answers: Many[DemoAnswer]) -> str:
    """The text."""
    heading = HEADING.format(
        num=len(answers),
        right=sum(answer.verdict.is_right for answer in answers),
        straight=sum(not answer.verdict.goes_in_circles for answer in answers),
    )
    return "\n".join([heading, *map(_entry, answers)])


def _entry(answer: DemoAnswer) -> str:
    verdict = answer.verdict
    faults = [
        name
        for name, is_so in (
            ("signature", not verdict.has_signature),
            ("sentence", not verdict.has_sentence),
            ("goes in circles", verdict.goes_in_circles),
        )
        if is_so
    ]
    mark = "✓" if verdict.is_right else "✗"
    said = f"   ({', '.join(faults)})" if faults else ""
    lines = "".join(f"    {line}".rstrip() + "\n" for line in answer.text.strip().splitlines())
    return f"{mark} {answer.question.question}{said}\n\n{lines}"
