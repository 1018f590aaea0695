/** The page: reads the form, runs one stream or two, and shows what comes. */

import { Api, ServerError } from "./api.js";
import { RoundChart, SpeedChart } from "./chart.js";
import { TreeChart } from "./tree.js";
import { Conversation } from "./conversation.js";
import { Form } from "./form.js";
import { DRAFTERS, ORIGINS } from "./origin.js";
import { Pane } from "./pane.js";
import { firstDifference } from "./tally.js";

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const now_s = () => performance.now() / 1000;

const api = new Api();
const form = new Form(/** @type {HTMLFormElement} */ (element("form")));
const conversation = new Conversation(element("turns"));
const on = new Pane(element("on"));
const off = new Pane(element("off"));
const speedChart = new SpeedChart(element("speed-chart"));
const roundChart = new RoundChart(element("round-chart"));
const treeChart = new TreeChart(element("tree-chart"));

/** @type {import("./api.js").Capabilities | null} */
let served = null;
/** @type {AbortController | null} */
let running = null;
let asked = ""; // the message that the panes answer
let chosenRound = 0; // whose tree is shown; 0 is the last one that has any
/** @type {Pane[]} */
let shown = []; // the panes in use; the first one has the charts' colours

/** Ask the server what it serves; without that nothing can be asked of it. */
async function greet() {
  served = await api.capabilities();
  const { model, speculation } = served;
  const context = model.max_model_len.toLocaleString("en");
  element("model").textContent = `${model.name} · context ${context}`;
  on.reasons = off.reasons = speculation.k_reasons;
  element("default").textContent = `${speculation.default_verification} (default)`;
}

async function run() {
  if (running !== null || !form.isReadable) return;
  running = new AbortController();
  element("run").textContent = "Stop";
  element("run").classList.add("stops");
  complain(null);
  verdict("", "");
  say("Running");
  try {
    if (served === null) await greet();
    await streams(running);
  } catch (error) {
    complain(/** @type {Error} */ (error));
  } finally {
    running = null;
    draw();
    element("run").textContent = "Run";
    element("run").classList.remove("stops");
    element("reply").hidden = !form.isChat || on.tally.text === "";
  }
}

/**
 * The streams that the form asks for, to their end.
 * @param {AbortController} stop
 */
async function streams(stop) {
  const wish = form.speculation;
  const seed = form.seed;
  const input = inputOf(form);
  /** @type {[Pane, boolean][]} */
  const plan =
    wish === "both"
      ? [
          [on, true],
          [off, false],
        ]
      : [[on, wish === "on"]];
  shown = plan.map(([pane]) => pane);
  chosenRound = 0;
  element("off").hidden = wish !== "both";
  element("panes").classList.toggle("both", wish === "both");
  for (const [pane, isSpeculated] of plan) {
    const heading = isSpeculated ? "With speculation" : "Without speculation";
    pane.begin(pane === off ? `${heading}, at the same time` : heading, now_s());
  }
  element("reply").hidden = true;
  const isInSight = element("panes").getBoundingClientRect().top < window.innerHeight / 2;
  if (!isInSight) element("panes").scrollIntoView();
  requestAnimationFrame(draw);
  const all = plan.map(([pane, isOn]) => stream(pane, form.body(input, seed, isOn), stop.signal));
  await Promise.all(all);
  const count = shown.map((pane) => pane.tally.tokenIds.length).join(" and ");
  if (stop.signal.aborted) say(`Stopped after ${count} tokens`);
  else if (shown.every((pane) => pane.tally.finishReason !== null)) {
    say(`Done: ${count} tokens, seed ${seed}`);
    if (wish === "both") compare(seed);
  }
}

/**
 * One stream into its pane. A failure is shown at once, whatever another stream still does.
 * @param {Pane} pane
 * @param {string} body
 * @param {AbortSignal} signal
 */
async function stream(pane, body, signal) {
  let reason = "broken off";
  try {
    for await (const event of api.generate(body, signal)) {
      if (event.type === "chunk") pane.add(event, now_s());
    }
    reason = `ended by ${pane.tally.finishReason}`;
  } catch (error) {
    if (signal.aborted) reason = "stopped";
    else complain(/** @type {Error} */ (error));
  } finally {
    pane.end(reason);
  }
}

/** @param {Form} form */
function inputOf(form) {
  asked = form.text;
  const model = served?.model.name;
  if (!form.isChat) return { model, prompts: [form.text] };
  const system = form.system === "" ? [] : [{ role: "system", content: form.system }];
  const user = { role: "user", content: form.text };
  return { model, messages: [...system, ...conversation.messages, user] };
}

/**
 * Both texts are there: are they the same?
 * @param {string} seed
 */
function compare(seed) {
  const at = firstDifference(on.tally, off.tally);
  if (at === null) {
    const count = on.tally.tokenIds.length;
    verdict("equal", `Equal: the same ${count} tokens with and without speculation, seed ${seed}.`);
    return;
  }
  const where = `Different from token ${at + 1} on, seed ${seed}`;
  const mode = form.verification || served?.speculation.default_verification;
  if (mode === "rejection" && !form.isGreedy) {
    verdict("allowed", `${where}: rejection keeps the distribution, not the draws.`);
  } else {
    verdict("different", `${where}: this is a bug, please report it.`);
  }
}

/** Figures, charts and legend of this moment; again with every frame while streams run. */
function draw() {
  for (const pane of shown) {
    if (pane.isStreaming) pane.tally.sample(now_s());
    pane.draw();
  }
  speedChart.draw(
    Object.fromEntries(shown.map((pane) => [pane === on ? "first" : "second", pane.tally.speeds])),
  );
  roundChart.draw(on.tally.rounds);
  for (const origin of ORIGINS) {
    const place = /** @type {HTMLElement} */ (element("legend").querySelector(`.${origin} output`));
    place.textContent = String(on.tally.origins.get(origin));
  }
  for (const drafter of DRAFTERS) {
    const place = /** @type {HTMLElement} */ (element("legend").querySelector(`.${drafter} small`));
    const judged = on.tally.judged.get(drafter);
    place.textContent = judged ? `of ${judged}` : "";
  }
  const { rounds } = on.tally;
  const round = chosenRound || 1 + rounds.findLastIndex(({ tree }) => tree !== null);
  treeChart.draw(rounds[round - 1]?.tree ?? null, round);
  if (running !== null) requestAnimationFrame(draw);
}

/**
 * The tree of the round of the token that the pointer or a finger is at.
 * @param {Event} event
 */
function choose(event) {
  const round = Number(/** @type {HTMLElement} */ (event.target).dataset?.round ?? 0);
  if (on.tally.rounds[round - 1]?.tree) chosenRound = round;
  if (running === null) draw();
}

/** @param {Error | null} error */
function complain(error) {
  const place = element("error");
  place.hidden = error === null;
  place.textContent = error === null ? "" : wordsOf(error);
  if (error === null) return;
  say("Failed");
  if (error instanceof ServerError && error.status === 401) element("key").focus();
}

/** @param {Error} error */
function wordsOf(error) {
  if (!(error instanceof ServerError)) return `The server cannot be reached: ${error.message}`;
  const facts = [error.status, error.code].filter((fact) => fact !== null);
  return facts.length > 0 ? `${error.message} (${facts.join(", ")})` : error.message;
}

/** @param {string} text */
function say(text) {
  element("status").textContent = text;
}

/**
 * @param {string} kind
 * @param {string} text
 */
function verdict(kind, text) {
  element("verdict").className = kind;
  element("verdict").textContent = text;
  element("verdict").hidden = text === "";
}

/** Keep the exchange and make room for the next message. */
function reply() {
  conversation.keep(asked, on.tally.turn, on.copy());
  element("reply").hidden = true;
  element("restart").hidden = false;
  form.text = "";
}

function restart() {
  conversation.clear();
  element("restart").hidden = true;
}

/** Chat and prompt have different words around the same field. */
function adapt() {
  element("text-label").textContent = form.isChat ? "Message" : "Prompt";
  element("system-field").hidden = !form.isChat;
  element("turns").hidden = !form.isChat;
  element("reply").hidden = true;
  element("restart").hidden = !form.isChat || conversation.messages.length === 0;
}

element("run").addEventListener("click", () => (running === null ? run() : running?.abort()));
element("reply").addEventListener("click", reply);
element("restart").addEventListener("click", restart);
element("on").addEventListener("pointerover", choose);
element("on").addEventListener("focusin", choose);
for (const choice of document.getElementsByName("input")) choice.addEventListener("change", adapt);
element("key").addEventListener("change", (event) => {
  api.key = /** @type {HTMLInputElement} */ (event.target).value;
  served = null;
  complain(null);
  greet().catch(complain);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  run();
});
draw();
greet().catch(complain);
