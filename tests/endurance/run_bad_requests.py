"""A good stream beside thousands of bad requests, and beside as many good ones.

    PYTHONPATH=tests python tests/endurance/run_bad_requests.py [--count 20000] [--rate 20]
                                                 [--seed 0] [--port PORT]

Starts `outrider serve` with the demo pair, or uses the server that listens on a port. First one
good text is asked for again and again beside well-formed requests, then beside bad ones
(`bad_requests.py`), at so many a second. Ends with an error for an answer of 5xx but 503, for a
text that is another, or for memory that has grown by more than a tenth; prints how long the stream
had to wait for its tokens in both.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter

import httpx
from endurance import bad_requests
from endurance.chaos import Server
from live.proc import descendants, resident_bytes

STREAM = {"model": "demo", "prompt": "class Stack:", "max_tokens": 128, "stream": True}
STREAM |= {"temperature": 0, "ignore_eos": True}
WARM = 300  # requests of each kind before memory is looked at


async def stream(http, gaps):
    """One text; the seconds between its events."""
    text, last = "", None
    async with http.stream("POST", "/v1/completions", json=STREAM) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                now = time.monotonic()
                if last is not None:
                    gaps.append(now - last)
                last = now
                text += line
    return "".join(part.split('"')[0] for part in text.split('"text": "')[1:])


async def beside(http, port, send, numbers, rate, seed):
    """(outcomes, gaps) of so many requests with good streams all the while. Raises AssertionError
    where a text is another.
    """
    gaps, outcomes, is_over = [], [], asyncio.Event()
    expected = await stream(http, [])

    async def good():
        while not is_over.is_set():
            text = await stream(http, gaps)
            assert text == expected, f"another text: {text!r}, expected {expected!r}"

    streaming = asyncio.create_task(good())
    tasks, started = set(), time.monotonic()
    for at, number in enumerate(numbers):
        await asyncio.sleep(max(0.0, started + at / rate - time.monotonic()))
        task = asyncio.create_task(send(port, number, seed))
        tasks.add(task)
        task.add_done_callback(lambda done: (tasks.discard(done), outcomes.append(done.result())))
        if streaming.done():
            break
    if tasks:
        await asyncio.wait(tasks)
    is_over.set()
    await streaming
    return outcomes, gaps


def p95(gaps):
    return statistics.quantiles(gaps, n=20)[-1]


def memory(pid):
    """Bytes that a process and all below it hold."""
    return sum(resident_bytes(each) or 0 for each in {pid, *descendants(pid)})


async def run(port, pid, count, rate, seed):
    """Print what was measured; whether all was well."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
        await beside(http, port, bad_requests.send, range(-WARM, 0), rate, seed)
        before = memory(pid) if pid else 0
        num_good = min(count, 1000)
        _, usual = await beside(http, port, bad_requests.well_formed, range(num_good), rate, seed)
        outcomes, gaps = await beside(http, port, bad_requests.send, range(count), rate, seed)
        await asyncio.sleep(5)
        grown = memory(pid) / before - 1 if pid else 0.0
        assert (await http.get("/ready")).status_code == 200
    kinds = Counter((each.kind, *each.statuses[:1]) for each in outcomes)
    for (kind, *status), num in sorted(kinds.items(), key=str):
        print(f"{num:6} {kind} {status[0] if status else '-'}")
    amiss = [each for each in outcomes if not each.is_refused]
    for each in amiss[:20]:
        print(f"{each.kind} {each.statuses}: {each.request!r}")
    print(f"{len(outcomes)} bad requests, {len(amiss)} with 5xx or no answer; texts undisturbed")
    print(
        f"p95 between a good stream's events: {1e3 * p95(gaps):.1f} ms beside them, "
        f"{1e3 * p95(usual):.1f} beside well-formed ones: {p95(gaps) / p95(usual):.2f} times; "
        f"longest {max(gaps):.2f} s and {max(usual):.2f} s"
    )
    print(f"memory: {grown:+.1%}")
    return not amiss and grown <= 0.1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int)
    args = parser.parse_args()
    if args.port is not None:
        sys.exit(not asyncio.run(run(args.port, None, args.count, args.rate, args.seed)))
    server = Server(30)
    try:
        server.await_start()
        port = int(server.url.rpartition(":")[2])
        pid = server.process.pid
        is_well = asyncio.run(run(port, pid, args.count, args.rate, args.seed))
    finally:
        server.stop()
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
