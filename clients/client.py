"""The blocking client. The conversation itself is `outrider.clients.protocol`; this sends it."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from outrider.clients.batch import Batch, progress_bar
from outrider.clients.connection import connection
from outrider.clients.errors import OutriderClientError
from outrider.clients.options import Messages, Options, Prompt, RetryPolicy, Timeouts
from outrider.clients.protocol import calls
from outrider.clients.protocol.calls import Call
from outrider.clients.protocol.exchange import AnswerSoFar, Exchange
from outrider.clients.protocol.wire import error_of
from outrider.clients.results import Chunk, Generation, Health, Model

if TYPE_CHECKING:
    import httpx

    from outrider.clients.transport import Transport

T = TypeVar("T")


class Client:
    """Speaks to one server, or to the proxy before many replicas. May be used from many threads.

    >>> with Client() as client:
    ...     print(client.generate("def add(a, b):", max_tokens=32, temperature=0).text)
    <BLANKLINE>
        return a + b

    Every answer survives what it can: it is asked for with a seed, and a stream that breaks goes on
    from its tokens, on whichever replica answers, to the text it would have been.
    """

    def __init__(
        self,
        base_url: str | None = None,  # else OUTRIDER_BASE_URL, else http://127.0.0.1:8000
        *,
        api_key: str | None = None,  # else OUTRIDER_API_KEY; "" for none
        model: str | None = None,  # else the one that is served
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        encoding: str = "msgpack",  # or "json"
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        from outrider.clients.transport import Transport  # and with it httpx

        times, policy = timeouts or Timeouts(), retry or RetryPolicy()
        self._connection = connection(base_url, api_key, model, times, policy, encoding)
        self._transport = Transport(self._connection, transport)
        self._model = model

    def generate(
        self, prompt: Prompt, *, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> Generation:
        """The continuation of a text, or of token ids. Raises OutriderClientError.

        >>> answer = client.generate("def add(a, b):", seed=5, temperature=0, max_tokens=32)
        >>> answer.finish_reason, answer.seed, answer.speculation.acceptance_rate
        ('stop', 5, 0.9333333333333333)
        """
        return self.stream(prompt, timeout_s=timeout_s, **options).result()

    def chat(
        self, messages: Messages, *, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> Generation:
        """The assistant's next turn. Raises OutriderClientError.

        >>> client.chat("What does len return?", max_tokens=32, temperature=0).text
        'The number of items.'
        """
        return self.stream(messages=messages, timeout_s=timeout_s, **options).result()

    def stream(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        timeout_s: float | None = None,
        **options: Unpack[Options],
    ) -> "Stream":
        """An answer as it is written, of a prompt or of messages; sent with the first read.

        >>> with client.stream("def add(a, b):", max_tokens=32, temperature=0) as stream:
        ...     for chunk in stream:
        ...         print(repr(chunk.text), f"{chunk.num_accepted} of {chunk.num_drafted}")
        '\\n    return' 10 of 10
        ' a' 1 of 2
        ' + b' 3 of 3
        >>> stream.text
        '\\n    return a + b'
        """
        now_s = time.monotonic()
        exchange = self._connection.exchange(prompt, messages, timeout_s, options, now_s)
        return Stream(exchange, self._transport, self.served_model)

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        max_concurrency: int = 16,
        progress: bool = False,  # a bar on standard error; needs rich
        timeout_s: float | None = None,  # for each prompt
        **options: Unpack[Options],
    ) -> list[Generation]:
        """The continuations of many prompts, in their order. Raises BatchFailed.

        >>> answers = client.generate_batch(["import ", "def add(a, b):"], temperature=0)
        >>> [answer.text for answer in answers]
        ['os', '\\n    return a + b']
        """
        opens = [partial(self.stream, p, timeout_s=timeout_s, **options) for p in prompts]
        return self._batch(opens, max_concurrency, progress)

    def chat_batch(
        self,
        conversations: Sequence[Messages],
        *,
        max_concurrency: int = 16,
        progress: bool = False,
        timeout_s: float | None = None,
        **options: Unpack[Options],
    ) -> list[Generation]:
        """The next turns of many conversations, as `generate_batch`."""
        opens = [
            partial(self.stream, messages=messages, timeout_s=timeout_s, **options)
            for messages in conversations
        ]
        return self._batch(opens, max_concurrency, progress)

    def models(self) -> list[Model]:
        """What is served.

        >>> [model.id for model in client.models()]
        ['demo']
        """
        return self._call(calls.MODELS)

    def served_model(self) -> str:
        """The model of requests that name none. Raises OutriderClientError."""
        if self._model is None:
            self._model = calls.sole_model(self.models())
        return self._model

    def capabilities(self) -> Mapping[str, Any]:
        """Parameters, limits, drafters and verification modes, as the server lists them."""
        return self._call(calls.CAPABILITIES)

    def health(self) -> Health:
        """How the replica that answers is; asked once.

        >>> client.health().status
        'ok'
        """
        return self._call(calls.HEALTH)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, call: Call[T]) -> T:
        now_s = time.monotonic()
        attempts = self._connection.attempts(now_s, is_only=call.is_asked_once)
        while True:
            try:
                request = call.request(attempts.begin(time.monotonic()))
                with self._transport.answered(request) as reply:
                    return call.read(reply.status_code, reply.headers, reply.read())
            except OutriderClientError as error:
                time.sleep(attempts.delay_after(error, time.monotonic()))

    def _batch(
        self, opens: Sequence[Callable[[], "Stream"]], max_concurrency: int, progress: bool
    ) -> list[Generation]:
        from concurrent.futures import ThreadPoolExecutor  # a seventh of this module's import

        with progress_bar(len(opens), progress) as advance:
            batch = Batch(len(opens), max_concurrency, advance)

            def work() -> None:
                while (index := batch.take()) is not None:
                    try:
                        with opens[index]() as stream:
                            for _ in stream:
                                if batch.is_cancelled:
                                    return
                            batch.done(index, stream.result())
                    except OutriderClientError as error:
                        batch.failed(index, error)

            with ThreadPoolExecutor(max(1, batch.num_workers)) as pool:
                try:
                    for future in [pool.submit(work) for _ in range(batch.num_workers)]:
                        future.result()
                except BaseException:
                    batch.cancel()
                    raise
        return batch.results()


class Stream(AnswerSoFar):
    """One answer as it is written: an iterator of chunks, and a context that ends it early."""

    def __init__(
        self,
        exchange: Exchange,
        transport: "Transport",
        served_model: Callable[[], str],
    ) -> None:
        super().__init__(exchange)
        self._transport = transport
        self._served_model = served_model
        self._chunks = self._read()

    def result(self) -> Generation:
        """The whole answer; reads what has not been read. Raises OutriderClientError."""
        for _ in self:
            pass
        return self._exchange.generation()

    def close(self) -> None:
        """Read no further; the server stops writing."""
        self._chunks.close()

    def __iter__(self) -> Iterator[Chunk]:
        return self._chunks

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> Generator[Chunk]:
        exchange = self._exchange
        while not exchange.is_over:
            try:
                model = exchange.model or self._served_model()
                request = exchange.request(model, time.monotonic())
                with self._transport.answered(request) as reply:
                    if reply.status_code != 200:
                        raise error_of(reply.status_code, reply.headers, reply.read())
                    exchange.open(reply.headers)
                    for data in reply.iter_bytes():
                        yield from exchange.feed(data, time.monotonic())
                exchange.close()
            except OutriderClientError as error:
                time.sleep(exchange.delay_after(error, time.monotonic()))
