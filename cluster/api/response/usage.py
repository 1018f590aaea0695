"""What one request's chunks add up to: usage, what speculation did, times. Knows
nothing of HTTP.
"""

import time
from collections import Counter

from outrider.actors.lookahead.round_report import PREDICTION
from outrider.actors.scheduling.request import OutputDelta
from outrider.clients.schema.openai_responses import (
    CompletionTokensDetails,
    CompletionUsage,
    Metrics,
    PromptTokensDetails,
    SpeculativeDecoding,
    Timings,
)
from outrider.cluster.api.request.job import Job


class UsageCounter:
    """Counts chunks as they come, over all choices of a request."""

    def __init__(
        self, num_prompt_tokens: int, k: int, num_resumed: int = 0, num_choices: int = 1
    ) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._num_choices = num_choices  # of each prompt
        self._num_cached = 0  # tokens of prompts
        self._k = k  # the most tokens a step may draft for this request
        self._num_resumed = num_resumed  # tokens generated before a resume
        self._num_tokens = 0
        self.num_reasoning = 0  # of them thoughts
        self._num_rounds = 0
        self._num_predicted = 0  # tokens drafted from the client's prediction
        self._num_predicted_accepted = 0
        self._steps: Counter[tuple[int, int]] = Counter()  # by (drafted, accepted)
        self._k_reasons: Counter[str] = Counter()
        self._begun_s = self._first_s = self._last_s = time.monotonic()
        self._num_first = 0  # tokens of the first commit

    @classmethod
    def of(cls, job: Job) -> "UsageCounter":
        """A counter for this job's chunks, nothing counted yet."""
        request, info = job.requests[0], job.engine.info
        k = info.k if request.speculation.k is None else request.speculation.k
        is_drafted = request.speculation.is_enabled and info.draft is not None
        num_prompt_tokens = sum(len(choice.prompt_ids) for choice in job.first_choices)
        resumed = [each.resumed for each in job.requests if each.resumed is not None]
        num_resumed = sum(len(each.output_ids) for each in resumed)
        return cls(num_prompt_tokens, k if is_drafted else 0, num_resumed, job.num_choices)

    def add(self, index: int, chunk: OutputDelta) -> None:
        """Count one commit of a choice."""
        if index % self._num_choices == 0:  # a prompt is counted once; the rest share its KV
            self._num_cached += chunk.num_cached
        self._last_s = time.monotonic()
        if not self._num_rounds:
            self._first_s, self._num_first = self._last_s, len(chunk.token_ids)
        self._num_tokens += len(chunk.token_ids)
        self._num_rounds += 1
        self._k_reasons[chunk.k_reason] += 1
        if chunk.num_drafted:
            self._steps[chunk.num_drafted, chunk.num_accepted] += 1
        tree = chunk.tree
        if PREDICTION in tree.drafters:
            self._num_predicted += tree.drafters.count(PREDICTION)
            accepted = (tree.drafters[at] for at in tree.accepted)
            self._num_predicted_accepted += sum(name == PREDICTION for name in accepted)

    def usage(self) -> CompletionUsage:
        """OpenAI's counts."""
        num_tokens = self._num_resumed + self._num_tokens
        return CompletionUsage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=num_tokens,
            total_tokens=self._num_prompt_tokens + num_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._num_cached),
            completion_tokens_details=CompletionTokensDetails(
                reasoning_tokens=min(self.num_reasoning, num_tokens),
                accepted_prediction_tokens=self._num_predicted_accepted,
                rejected_prediction_tokens=self._num_predicted - self._num_predicted_accepted,
            ),
        )

    def metrics(self) -> Metrics:
        """The speculation block, and the times."""
        num_steps = self._steps.total()
        num_drafted = sum(drafted * count for (drafted, _), count in self._steps.items())
        num_accepted = sum(accepted * count for (_, accepted), count in self._steps.items())
        k = max([self._k, *(drafted for drafted, _ in self._steps)])
        by_length = {
            str(length): self._histogram(length, [length])
            for length in sorted({drafted for drafted, _ in self._steps})
        }
        block = SpeculativeDecoding(
            num_spec_steps=num_steps,
            num_draft_tokens=num_drafted,
            num_accepted_draft_tokens=num_accepted,
            draft_acceptance_rate=num_accepted / max(1, num_drafted),
            mean_acceptance_length=1 + num_accepted / max(1, num_steps),
            acceptance_histogram=self._histogram(k, range(k + 1)),
            acceptance_histogram_by_draft_length=by_length,
            num_spec_tokens=k,
            num_rounds=self._num_rounds,
            tokens_per_round=self._num_tokens / max(1, self._num_rounds),
            k_reasons=dict(self._k_reasons),
        )
        return Metrics(speculative_decoding=block, timings=self._timings())

    def _timings(self) -> Timings:
        decode_s, num_later = self._last_s - self._first_s, self._num_tokens - self._num_first
        return Timings(
            time_to_first_token_s=self._first_s - self._begun_s,
            decode_s=decode_s,
            tokens_per_s=num_later / decode_s if num_later and decode_s else 0.0,
        )

    def _histogram(self, longest: int, lengths: range | list[int]) -> list[int]:
        """Steps by accepted count, [longest + 1], over proposals of these lengths."""
        return [
            sum(self._steps[length, accepted] for length in lengths)
            for accepted in range(longest + 1)
        ]
