"""The playground, served by the real application over an engine that recites, in a real browser."""

import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import pytest
from cluster.browser import Browser, colours, is_near
from cluster.live_site import Site, served
from cluster.scripted_engine import ROUNDS, SCRIPT, Pieces, ScriptedEngine, origins
from selenium.webdriver.common.keys import Keys

from outrider.actors.errors import Overloaded
from outrider.actors.lookahead.reason import Reason
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.cluster.api.middleware.keys import Key, KeyRing, Policy, digest_of

ORIGINS = (
    "draft",
    "ngram",
    "suffix",
    "prediction",
    "recovered",
    "bonus",
)  # those that are coloured
NUM_TOKENS = len(Pieces(SCRIPT).script)
SECRET = "sk-test-0001"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.driver.quit()


@pytest.fixture
def policy() -> Policy:
    return Policy()


@pytest.fixture
def site(policy: Policy) -> Iterator[Site[ScriptedEngine]]:
    with served(ScriptedEngine(delay_s=0.01), policy) as site:
        yield site


@pytest.fixture
def page(browser: Browser, site: Site[ScriptedEngine]) -> Iterator[Browser]:
    """The page, open; it must end without complaints and without a request to anybody else."""
    browser.show(site.url)
    browser.wait("document.getElementById('model').textContent.startsWith('toy')")
    yield browser
    assert browser.complaints() == []
    asked = browser.requests()
    assert f"{site.url}capabilities" in asked
    assert [url for url in asked if not url.startswith(site.url)] == []


def status(page: Browser, beginning: str) -> None:
    """Wait for the line under the button."""
    page.wait(f"document.getElementById('status').textContent.startsWith({beginning!r})")


def tokens(page: Browser, pane: str) -> Any:
    """Text and classes of every token."""
    pairs = "map((token) => [token.textContent, token.className])"
    return page.run(f"return [...document.querySelectorAll('#{pane} .token')].{pairs}")


def test_every_token_has_its_origin(page: Browser) -> None:
    page.find("#run").click()
    status(page, "Done")
    pieces, expected = Pieces(SCRIPT), origins(NUM_TOKENS)
    texts = [pieces.decode([token_id]) for token_id in pieces.script]
    assert tokens(page, "on") == [
        [text, f"token {o}"] for text, o in zip(texts, expected, strict=True)
    ]
    counts = Counter(map(str, expected))
    assert set(counts) == {*ORIGINS, "plain"}
    assert {o: int(page.find(f"#legend li.{o} output").text) for o in counts} == counts
    judged = {drafter: 0 for drafter, *_ in ROUNDS}
    for drafter, num_drafted, _ in islice(cycle(ROUNDS), int(page.find("#round-chart .to").text)):
        judged[drafter] += num_drafted
    for drafter in ("draft", "ngram", "suffix", "prediction"):
        assert page.find(f"#legend li.{drafter} small").text == f"of {judged[drafter]}"


def test_the_tree_of_a_round_is_drawn(page: Browser) -> None:
    assert not page.find("#tree-chart").is_displayed()
    page.find("#run").click()
    status(page, "Done")
    words = (
        "return [...document.querySelectorAll('.tree text')].map((t) => t.getAttribute('class'))"
    )
    assert page.find("#tree-chart").is_displayed(), "the last one's"
    page.run("document.querySelector('[data-round=\"3\"]').focus()")
    assert page.run(words) == ["kept ngram"] * 6
    page.run("document.querySelector('[data-round=\"2\"]').focus()")
    assert page.find("#tree-chart .which").text == "round 2: 1 of 4 accepted"
    assert page.run(words) == ["kept draft", *["wasted"] * 3]
    places = """const { placesOf } = await import('./playground/tree.js');
        return placesOf([-1, 0, 0, 1, -1])"""
    found = page.driver.execute_async_script(
        f"const done = arguments[arguments.length - 1]; (async () => {{ {places} }})().then(done)"
    )
    assert [(place["column"], place["line"]) for place in found] == [
        (0, 0), (1, 0), (1, 1), (2, 0), (0, 2),
    ]  # fmt: skip


def test_origins_are_told_by_colour_and_by_line(page: Browser) -> None:
    page.find("#run").click()
    status(page, "Done")
    lines = """return arguments[0].map((name) => {
        const style = getComputedStyle(document.querySelector(`#on .token.${name}`));
        return `${style.textDecorationColor} ${style.textDecorationStyle}`;
    })"""
    assert len(set(page.run(lines, list(ORIGINS)))) == len(ORIGINS)
    tints = {name: page.tint(f"#on .token.{name}", "#on .text") for name in ORIGINS}
    assert len(set(tints.values())) == len(ORIGINS)
    page.run("document.querySelector('#on .text').scrollTop = 0")
    picture = colours(page.find("#on .text").screenshot_as_png)
    for name, tint in tints.items():
        num = sum(count for colour, count in picture.items() if is_near(colour, tint))
        assert num > 100, f"{num} pixels of {name} in the screenshot"


def test_figures_and_charts_move_while_it_streams(
    page: Browser, site: Site[ScriptedEngine]
) -> None:
    site.engine.delay_s = 0.03
    page.find("#run").click()
    seen: list[list[str]] = []
    for count in (1, 20, 80):
        page.wait(f"document.querySelectorAll('#on .token').length > {count}")
        site.engine.is_held = True  # however long it takes to look
        figures = [page.find(f"#on .{name}").text for name in ("tokens", "per-round", "speed")]
        charts = [page.find(f"#{name} svg") for name in ("speed-chart", "round-chart")]
        seen.append(figures + [chart.screenshot_as_base64 for chart in charts])
        assert page.find("#status").text == "Running"
        site.engine.is_held = False
    status(page, "Done")
    names = ("tokens", "tokens/round", "tokens/s", "speed chart", "round chart")
    for name, moments in zip(names, zip(*seen, strict=True), strict=True):
        assert len(set(moments)) > 1, f"{name} stood still"
    assert page.find("#on .tokens").text == str(NUM_TOKENS)
    assert float(page.find("#on .speed").text) > 0
    num_rounds = int(page.find("#round-chart .to").text)
    assert float(page.find("#on .per-round").text) == pytest.approx(NUM_TOKENS / num_rounds, 0.01)
    assert page.find("#on .acceptance").text.endswith("%")


def test_side_by_side_the_texts_are_equal(page: Browser, site: Site[ScriptedEngine]) -> None:
    page.choose("both")
    page.type_into("seed", "9007199254740993")  # not a number of JavaScript's
    page.find("#run").click()
    status(page, "Done")
    texts = [
        page.run(f"return document.querySelector('#{i} .text').textContent") for i in ("on", "off")
    ]
    assert texts == [SCRIPT, SCRIPT]
    assert page.find("#verdict").text.startswith(f"Equal: the same {NUM_TOKENS} tokens")
    assert {request.seed for request in site.engine.requests} == {9007199254740993}
    assert {request.speculation.is_enabled for request in site.engine.requests} == {True, False}
    assert {kind for _, kind in tokens(page, "off")} == {"token plain"}


@pytest.mark.parametrize(
    ("servers", "chosen", "temperature", "verdict"),
    [
        ("coupled", "", "1", "different"),
        ("coupled", "rejection", "1", "allowed"),
        ("rejection", "", "", "allowed"),
        ("rejection", "", "0", "different"),
    ],
)
def test_texts_that_differ_are_said_to(
    page: Browser,
    site: Site[ScriptedEngine],
    servers: str,
    chosen: str,
    temperature: str,
    verdict: str,
) -> None:
    site.engine.is_exact, site.engine.info.verification = False, servers
    page.show(site.url)
    page.wait(f"document.getElementById('default').textContent.startsWith({servers!r})")
    page.choose("both")
    page.type_into("temperature", temperature)
    page.type_into("max_tokens", "12")
    page.find("[name=verification]").send_keys(chosen)
    page.find("#run").click()
    status(page, "Done")
    assert page.find("#verdict").text.startswith("Different from token 10 on")
    assert page.find("#verdict").get_attribute("class") == verdict


def test_by_keyboard(page: Browser, site: Site[ScriptedEngine]) -> None:
    site.engine.delay_s = 0.3
    keyboard = page.find("textarea[name=text]")
    keyboard.send_keys(Keys.CONTROL, Keys.ENTER)
    page.wait("document.querySelectorAll('#on .token').length > 3")
    page.find("body").send_keys(Keys.ESCAPE)
    status(page, "Stopped after")
    assert "stopped" in page.find("#on .end").text
    deadline = time.monotonic() + 60
    while site.engine.num_closed == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert site.engine.num_closed == 1, "stopping did not reach the engine"
    reached = set()
    for _ in range(25):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(
            page.run("const e = document.activeElement; return e.id || e.name || e.tagName")
        )
        outline = """const e = document.activeElement;
            return getComputedStyle(e.type === 'radio' ? e.nextElementSibling : e).outlineStyle"""
        assert (
            page.run("return document.activeElement === document.body")
            or page.run(outline) != "none"
        )
    assert {
        "run",
        "key",
        "temperature",
        "seed",
        "k",
        "verification",
        "speculation",
        "SUMMARY",
    } <= reached


def test_text_is_never_markup(page: Browser) -> None:
    attack = "<img src=x onerror='window.wasRun = 1'><script>window.wasRun = 1</script>"
    page.type_into("text", attack)
    page.find("#run").click()
    status(page, "Done")
    page.find("#reply").click()
    assert page.find("#turns .said").text == attack
    assert "<script>window.wasRun = 1</script>" in page.find("#turns li:last-child .said").text
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0
    assert page.run("return typeof window.wasRun") == "undefined"


def test_a_chat_goes_on(page: Browser, site: Site[ScriptedEngine]) -> None:
    for question in ("first", "second"):
        page.type_into("text", question)
        page.find("#run").click()
        page.wait("!document.getElementById('reply').hidden")
        page.find("#reply").click()
    prompt = site.engine.tokenizer.decode(site.engine.requests[-1].prompt_ids)
    assert prompt == f"<user>first<assistant>{SCRIPT}<user>second"


def test_thoughts_are_folded(browser: Browser, policy: Policy) -> None:
    thoughts, said = "<think> Hm, 日本語 < b.\n</think>", "\n\nYes, it splits."
    engine = ScriptedEngine(delay_s=0.01, tokenizer=Pieces(thoughts + said))
    engine.tokenizer.chat_template = "</think>"
    with served(engine, policy) as site:
        browser.show(site.url)
        browser.wait("document.getElementById('model').textContent.startsWith('toy')")
        browser.find("#run").click()
        browser.wait("!document.getElementById('reply').hidden")
        fold = browser.find("#on .thoughts")
        assert not fold.get_property("open")
        texts = "return [...document.querySelectorAll('#on {} .token')].map((t) => t.textContent)"
        folded = browser.run(texts.format(".thoughts"))
        assert "".join(folded) == thoughts
        assert "".join(browser.run(texts.format("")))[len(thoughts) :] == said
        assert fold.text == f"Thoughts, {len(folded)} tokens"
        fold.find_element("css selector", "summary").click()
        assert "Hm, 日本語 < b." in fold.text
        browser.find("#reply").click()
        browser.type_into("text", "and?")
        browser.find("#run").click()
        browser.wait("!document.getElementById('reply').hidden")
        prompt = engine.tokenizer.decode(engine.requests[-1].prompt_ids)
        assert prompt.endswith("<assistant>Yes, it splits.<user>and?")
        assert browser.complaints() == []


def test_every_field_reaches_the_engine(page: Browser, site: Site[ScriptedEngine]) -> None:
    page.choose("prompt")
    page.find("summary").click()
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "max_tokens": 12}
    fields |= {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": -0.3}
    for name, value in (fields | {"k": 3, "prediction": "so", "text": "Once", "seed": -5}).items():
        page.type_into(name, str(value))
    page.find("[name=verification]").send_keys("rejection")
    page.find("#run").click()
    status(page, "Done: 12 tokens, seed -5")
    (request,) = site.engine.requests
    assert {name: getattr(request.sampling, name) for name in fields} == fields
    assert request.prompt_ids == tuple(site.engine.tokenizer.encode("Once"))
    assert request.prediction_ids == tuple(site.engine.tokenizer.encode("so"))
    assert request.seed == 2**64 - 5
    assert (request.speculation.k, request.speculation.verification) == (
        3,
        VerificationMode.REJECTION,
    )


def test_a_refusal_is_shown_as_it_is(page: Browser, site: Site[ScriptedEngine]) -> None:
    page.type_into("k", "17")
    page.find("#run").click()
    status(page, "Failed")
    assert "Got speculation.k=17, expected 0 ≤ k ≤ 16" in page.find("#error").text
    assert len(page.complaints()) == 1  # Chromium's own line on the status 400
    page.find("[name=k]").clear()
    site.engine.failure = Overloaded("Got too much, expected less")
    page.find("#run").click()
    status(page, "Failed")
    assert page.find("#error").text.startswith("Got too much, expected less")
    assert page.find("#on .text").text != ""


@pytest.mark.parametrize("policy", [Policy(keys=KeyRing([Key("me", digest_of(SECRET))]))])
def test_a_key_is_asked_for_and_kept_in_memory_only(
    browser: Browser, site: Site[ScriptedEngine]
) -> None:
    browser.show(site.url)
    status(browser, "Failed")
    assert "Got no API key" in browser.find("#error").text
    browser.find("#key").send_keys(SECRET, Keys.TAB)
    browser.wait("document.getElementById('model').textContent.startsWith('toy')")
    browser.find("#run").click()
    status(browser, "Done")
    for store in ("localStorage", "sessionStorage", "document.cookie", "location.href"):
        assert SECRET not in browser.run(f"return JSON.stringify({store})")
    assert browser.find("#key").get_attribute("type") == "password"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_at_380_pixels_nothing_runs_off_the_side(
    page: Browser, site: Site[ScriptedEngine], scheme: str
) -> None:
    page.show(site.url, 380, 800, scheme)
    page.find("summary").click()
    page.choose("both")
    page.type_into("text", "W" * 200)
    page.find("#run").click()
    status(page, "Done")
    page.find("#reply").click()
    assert page.run("return document.documentElement.scrollWidth") <= 380
    outside = """return [...document.querySelectorAll('main *, header *')].filter((e) => {
        const box = e.getBoundingClientRect();
        if (e.closest('.tree svg')) return false; // that scrolls by itself
        return box.width > 0 && (box.left < 0 || box.right > 380);
    }).map((e) => e.outerHTML)"""
    assert page.run(outside) == []


def test_on_a_phone_the_answer_is_above_the_settings(
    page: Browser, site: Site[ScriptedEngine]
) -> None:
    page.show(site.url, 380, 800)
    places = (
        "return ['#run', '#panes', '#settings'].map((name) => document.querySelector(name)"
        ".getBoundingClientRect().top)"
    )
    run, panes, settings = page.run(places)
    assert run < panes < settings


def test_figures_and_reasons_explain_themselves(page: Browser) -> None:
    page.find("#run").click()
    status(page, "Done")
    said = (
        "return [...document.querySelectorAll('[data-says]')].map((e) => [e.textContent,"
        "e.dataset.says, e.tabIndex])"
    )
    explained = page.run(said)
    assert all(says.endswith(".") and index == -1 for _, says, index in explained)
    reasons = {reason.sentence for reason in Reason}
    [*whys] = page.run("return [...document.querySelectorAll('#on .why')]"
                       ".map((e) => e.dataset.says)")  # fmt: skip
    assert whys
    assert set(whys) <= reasons
    shown = (
        "const token = document.querySelector('#on .text .token'); token.focus();"
        "return getComputedStyle(token, '::after').content"
    )
    assert "of" in page.run(shown) or "nothing drafted" in page.run(shown)


def test_events_are_read_wherever_they_are_cut(page: Browser) -> None:
    script = """
        const stream = ': hello\\r\\n\\r\\ndata: {"a": "é日🙂"}\\n\\nevent: x\\rdata:1\\r\\n'
            + 'data: 2\\r\\rdata: last\\r\\n\\r\\ndata: never ended\\n';
        return import('/playground/event_stream.js').then(({ EventStreamParser }) => {
            const bytes = new TextEncoder().encode(stream);
            const read = (pieces) => {
                const parser = new EventStreamParser();
                return JSON.stringify(pieces.flatMap((piece) => parser.push(piece)));
            };
            const seen = new Set([read([...bytes].map((byte) => new Uint8Array([byte])))]);
            for (let cut = 0; cut <= bytes.length; cut++) {
                seen.add(read([bytes.slice(0, cut), bytes.slice(cut)]));
            }
            return [...seen];
        });"""
    assert page.run(script) == ['["{\\"a\\": \\"é日🙂\\"}","1\\n2","last"]']
