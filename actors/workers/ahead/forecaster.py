"""The draft riding ahead: forecasts of what the target is judging, grown until it has judged.

One step is one packed forward over every sequence: what is left of each trunk, and the tips of
branches that are likely enough to be needed. Forks are pushed as soon as they are known, growth
after every step, and between two steps the worker looks for the next outcome. Whatever was computed
along the way that came true is kept.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.errors import PoolExhausted, ProtocolViolation
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.runner import Runner
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import Forecasts
from outrider.actors.transport.rows import ForecastRow, OutcomeRow
from outrider.actors.workers.ahead.fork_selection import MOST, WIDEST, Odds
from outrider.actors.workers.ahead.token_tree import Node, TokenTree
from outrider.actors.workers.logits.logits_processor import NOT_DRAFTED, logits_edits
from outrider.actors.workers.logits.worker_grammars import WorkerGrammars
from outrider.actors.workers.model_worker import WorkerSequence
from outrider.actors.workers.sampling_metadata import acceptance_rule
from outrider.actors.workers.sparse_row import TOP_M, sparse_row
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    Backend,
    DrawBatch,
    SamplingMetadata,
)

SamplingOf = Callable[[tuple[int, ...]], SamplingMetadata]  # by sequences, row by row

MAX_FAILED = 3  # sequences in a row: it is the draft's fault then
STEP_TOKENS = 256  # of a prompt to catch up with, in one step: the next outcome waits for it

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ForecastTree:
    """One sequence's tree, and whose proposal it belongs to."""

    sequence: WorkerSequence
    asked: OutcomeRow
    tree: TokenTree
    is_over: bool = False  # until the next outcome

    @property
    def num_guesses(self) -> int:
        """As many as may be bet on at one position, and the drafted token."""
        return 1 + min(MOST * self.asked.num_branches, WIDEST)


class Forecaster:
    """Forecasts for the sequences of one draft worker."""

    def __init__(
        self,
        runner: Runner,
        backend: Backend[torch.Tensor],
        num_ids: int,
        sampling: SamplingOf,
        grammars: WorkerGrammars,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._runner = runner
        self._backend = backend
        self._num_ids = num_ids
        self._sampling = sampling
        self._grammars = grammars
        self._forecasts: dict[int, ForecastTree] = {}
        self._failed: list[ForecastRow] = []
        self._num_failed = 0  # sequences in a row that failed alone
        self._odds = Odds()

    def outcome(self, row: OutcomeRow, sequence: WorkerSequence) -> None:
        """Go on from what has come true, for the next proposal. Raises ProtocolViolation."""
        if row.num_committed - len(row.committed) != len(sequence.ids):
            raise ProtocolViolation(
                f"Got ids from position {row.num_committed - len(row.committed)} for sequence "
                f"{row.seq_id}, expected from {len(sequence.ids)}"
            )
        before = self._forecasts.pop(row.seq_id, None)
        fed: list[Node] = []
        if before is not None:
            fed = before.tree.fed_along((*row.committed, *row.tokens))
            if before.tree.parents:
                places = [node.place for node in fed]
                self._runner.accept_path(sequence.cache, before.tree.first, places)
        sequence.ids += row.committed
        stop = sequence.draft_stop or self._trouble(row, sequence)
        if stop is not None:
            self._stop(sequence, row.id, stop)
            return
        odds = (
            None
            if acceptance_rule(sequence.row.sampling) is AcceptanceRule.REJECTION
            else self._odds
        )
        if odds:
            for node, token in zip(fed, row.committed, strict=False):
                if node.next_token >= 0:
                    odds.learn(node.prob, is_right=node.next_token == token)
        tree = TokenTree(sequence.ids[-1], row.num_committed - 1, row.tokens, odds)
        tree.inherit(fed[len(row.committed) :])
        self._forecasts[row.seq_id] = ForecastTree(sequence, row, tree)

    def forget(self, seq_id: int) -> None:
        """The sequence has ended, or begins anew."""
        self._forecasts.pop(seq_id, None)
        self._failed = [row for row in self._failed if row.seq_id != seq_id]

    def advance(self) -> Forecasts | None:
        """Forks that cost nothing, else one step; None if there is nothing left to do."""
        rows, self._failed = self._failed, []
        rows += self._rows(())
        if rows:
            return Forecasts(tuple(rows), 0, self._clock(), 0.0)
        started = self._clock()
        jobs, budget = [], STEP_TOKENS
        for forecast in self._forecasts.values():
            job = None if forecast.is_over else self._job(forecast, budget)
            if job is not None:
                jobs.append(job)
                budget = max(1, budget - job.num_behind)
        if not jobs:
            return None
        try:
            logits = self._runner.forward([job.chunk for job in jobs])
        except PoolExhausted:  # an optimisation must not fail a round
            self._give_up(jobs)
            return self.advance()
        except Exception:
            log.exception("a step of the draft failed")
            jobs, logits = self._each_alone(jobs)
            if not jobs:
                return self.advance()
        for job in jobs:
            job.forecast.tree.feed(job.nodes)
        jobs = self._drawn(jobs, logits)
        fed = tuple(job.forecast for job in jobs)
        num_tokens = sum(len(job.chunk.tokens) for job in jobs)
        rows = self._rows(fed)
        return Forecasts(tuple(rows), num_tokens, started, self._clock() - started)

    def _drawn(self, jobs: "list[ForecastJob]", logits: torch.Tensor) -> "list[ForecastJob]":
        """Draw for all; those for which that could be done, as a grammar may fail."""
        try:
            self._draw([job for job in jobs if job.nodes], logits)
            return jobs
        except Exception:
            log.exception("a step of the draft failed")
        done, at = [], 0
        for job in jobs:
            end = at + len(job.nodes)
            try:
                self._draw([job] if job.nodes else [], logits[at:end])
                done.append(job)
            except Exception as error:
                self._drop(job, error)
            at = end
        return done

    def _drop(self, job: "ForecastJob", error: Exception) -> None:
        """Follow a sequence no more. Raises the error if several in a row were dropped."""
        forecast = job.forecast
        log.error("the draft cannot follow sequence %d: %s", forecast.asked.seq_id, error)
        del self._forecasts[forecast.asked.seq_id]
        self._stop(forecast.sequence, forecast.asked.id, DraftStop.FAILED)
        self._num_failed += 1
        if self._num_failed >= MAX_FAILED:
            raise error

    def _each_alone(self, jobs: "list[ForecastJob]") -> "tuple[list[ForecastJob], torch.Tensor]":
        """Those that can be computed, and their logits; the others are not followed any more.

        Raises if several in a row cannot: it is no sequence's fault then.
        """
        done, logits = [], []
        for job in jobs:
            try:
                logits.append(self._runner.forward([job.chunk]))
                done.append(job)
                self._num_failed = 0
            except Exception as error:
                self._drop(job, error)
        return done, torch.cat(logits) if logits else torch.empty(0, self._runner.vocab_size)

    def _trouble(self, row: OutcomeRow, sequence: WorkerSequence) -> DraftStop | None:
        """Why the draft cannot follow any more."""
        if max((*row.committed, *row.tokens), default=0) >= self._runner.num_embeddings:
            return DraftStop.VOCABULARY
        return DraftStop.CONTEXT if row.num_committed >= self._runner.context_len else None

    def _stop(self, sequence: WorkerSequence, id_: int, stop: DraftStop) -> None:
        sequence.draft_stop = stop
        self._runner.rollback(sequence.cache, 0)
        self._failed.append(ForecastRow(sequence.row.seq_id, id_, (), (), (), stop))

    def _give_up(self, jobs: "list[ForecastJob]") -> None:
        """No pages for all of them: branches grow no more, then the last text waits for an outcome.

        Outcomes give back what branches hold; where there are none, that text is not followed.
        """
        if growing := [job.forecast for job in jobs if job.forecast.tree.parents]:
            for forecast in growing:
                forecast.is_over = True
            return
        last = jobs[-1].forecast
        last.is_over = True
        if not any(forecast.tree.parents for forecast in self._forecasts.values()):
            del self._forecasts[last.sequence.row.seq_id]
            self._stop(last.sequence, last.asked.id, DraftStop.PAGES)

    def _job(self, forecast: ForecastTree, budget: int) -> "ForecastJob | None":
        """What this sequence feeds in the next step."""
        cache, tree, ids = forecast.sequence.cache, forecast.tree, forecast.sequence.ids
        indices = tree.hungry(forecast.asked.max_tokens, self._runner.context_len)
        if not indices:
            return None
        tokens = [tree.nodes[index].token for index in indices]
        if tree.parents:
            places = {index: len(tree.parents) + at for at, index in enumerate(indices)}
            parents = tree.parents + [
                places.get(parent, tree.nodes[parent].place)
                for parent in (tree.nodes[index].parent for index in indices)
            ]
            chunk = Segment(cache, tokens, len(tokens), parents, root=tree.first)
            return ForecastJob(forecast, chunk, indices, 0)
        behind = ids[cache.len : tree.first]
        if len(behind) > budget:
            return ForecastJob(forecast, Segment(cache, behind[:budget], 0), [], budget)
        chunk = Segment(cache, [*behind, *tokens], len(tokens))
        return ForecastJob(forecast, chunk, indices, len(behind))

    def _draw(self, jobs: "list[ForecastJob]", logits: torch.Tensor) -> None:
        """The draft's own token after each fed node, and its guesses of the target's."""
        if not jobs:
            return
        rows = [job.forecast.sequence.row for job in jobs for _ in job.nodes]
        nodes = [job.forecast.tree.nodes[index] for job in jobs for index in job.nodes]
        for job in jobs:
            if job.forecast.sequence.processor is not None:
                job.forecast.sequence.processor.take(job.forecast.sequence.ids)
        edited = [
            (job.forecast.sequence.processor, (job.forecast.tree.path(index), ()))
            if job.forecast.sequence.processor
            else (None, NOT_DRAFTED)
            for job in jobs
            for index in job.nodes
        ]
        batch = DrawBatch(
            logits,
            self._sampling(tuple(row.seq_id for row in rows)),
            np.array([node.position + 1 for node in nodes], np.int32),
            vocab_size=self._num_ids,
            top_m=TOP_M,
            num_guesses=max(job.forecast.num_guesses for job in jobs),
            edits=logits_edits(edited, logits.shape[1], self._grammars.filler, is_last=True),
        )
        draws = self._backend.draw(batch)
        tokens, guesses, errors = draws.token.tolist(), draws.guesses.tolist(), draws.error.tolist()
        probs = draws.prob.tolist()
        for at, node in enumerate(nodes):
            if errors[at]:
                continue
            node.next_token, node.prob = tokens[at], probs[at]
            node.guesses = tuple(guess for guess in guesses[at] if guess >= 0)
            if acceptance_rule(rows[at].sampling) is AcceptanceRule.REJECTION:
                node.next_row = sparse_row(draws, at)

    def _rows(self, fed: tuple[ForecastTree, ...]) -> list[ForecastRow]:
        """What changed: growth of those just fed, and forks wherever some are due."""
        rows = []
        for forecast in fed or tuple(self._forecasts.values()):
            asked, growth, sparse = forecast.asked, [], []
            for number, tip in forecast.tree.grow(asked.min_chance) if fed else ():
                growth.append((number, tip.next_token))
                if tip.next_row is not None:
                    sparse.append(tip.next_row)
            forks = tuple(forecast.tree.fork(asked.num_branches))
            if forks or growth:
                rows.append(
                    ForecastRow(asked.seq_id, asked.id, forks, tuple(growth), tuple(sparse))
                )
        return rows


@dataclass(frozen=True, slots=True)
class ForecastJob:
    """One sequence's part in a step."""

    forecast: ForecastTree
    chunk: Segment
    nodes: list[int]  # fed by it, whose logits are its rows
    num_behind: int  # committed tokens that it catches up with
