"""The line that says how busy a server is, read off the metrics that the application writes."""

import httpx

from outrider.cluster.api.metrics.throughput import READ, reading, throughput


async def test_a_server_at_work_says_how_fast(http: httpx.AsyncClient) -> None:
    async def now(at_s: float):  # type: ignore[no-untyped-def]
        return reading((await http.get("/metrics")).text, at_s)

    first = await now(0.0)
    assert set(first.values) == READ  # every one is a name that the application writes
    assert throughput(first, await now(10.0)) == ""  # nothing was asked
    body = {"model": "toy", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
    assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
    line = throughput(first, await now(10.0))
    assert line.startswith("2.0 tokens/s generated; ")
    assert "0 running, 0 waiting" in line
    assert line.endswith("25% of drafted tokens accepted")  # as the toy has it


def test_another_replicas_counts_are_no_throughput() -> None:
    before = reading("vllm:generation_tokens_total 50.0\n", 0.0)
    assert throughput(before, reading("vllm:generation_tokens_total 20.0\n", 10.0)) == ""
