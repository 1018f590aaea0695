/**
 * What the chunks of one stream add up to. Takes the time as an argument; knows of no page.
 *
 * @typedef {import("./origin.js").Origin} Origin
 * @typedef {{numDrafted: number, accepted: Origin[], tree: import("./tree.js").Tree | null}} Round
 * @typedef {{time_s: number, rate: number}} Speed tokens/s over the window that ends at `time_s`
 */

import { DRAFTERS, ORIGINS, originOf } from "./origin.js";

const WINDOW_S = 0.5;
const SAMPLE_S = 0.05; // the chart's resolution

export class Tally {
  /** @type {number[]} */
  tokenIds = [];
  text = "";
  /** @type {Round[]} */
  rounds = [];
  /** @type {Speed[]} */
  speeds = [];
  origins = new Map(ORIGINS.map((origin) => [origin, 0]));
  judged = new Map(DRAFTERS.map((drafter) => [drafter, 0])); // proposed tokens that were looked at
  /** @type {Map<string, number>} */
  reasons = new Map(); // rounds by why they drafted so many
  /** @type {string | null} */
  finishReason = null;
  /** @type {import("./conversation.js").Message | null} */
  message = null; // the text as a turn, once it is whole
  reasoningLen = 0; // characters of the text, from its beginning, that are thoughts
  /** @type {{time_s: number, numTokens: number}[]} */
  #arrivals = []; // one a chunk, with the count up to it
  #start_s;

  /** @param {number} now_s when the request is sent */
  constructor(now_s) {
    this.#start_s = now_s;
  }

  /**
   * Count one chunk.
   * @param {import("./api.js").Chunk} chunk
   * @param {number} now_s
   */
  add(chunk, now_s) {
    this.tokenIds.push(...chunk.token_ids);
    this.text += chunk.text;
    this.finishReason = chunk.finish_reason;
    this.message = chunk.message ?? null;
    this.reasoningLen = chunk.reasoning_len ?? this.reasoningLen;
    const { num_drafted: numDrafted, num_accepted: numAccepted, tree = null } = chunk;
    const origins = chunk.origins.map(originOf);
    this.rounds.push({ numDrafted, accepted: origins.slice(0, numAccepted), tree });
    for (const origin of origins) count(this.origins, origin);
    for (const drafter of tree?.drafters ?? []) count(this.judged, originOf(drafter));
    count(this.reasons, chunk.k_reason);
    this.#arrivals.push({ time_s: now_s, numTokens: this.tokenIds.length });
  }

  /**
   * Note the speed of the moment, for the chart.
   * @param {number} now_s
   */
  sample(now_s) {
    const time_s = now_s - this.#start_s;
    const last = this.speeds.at(-1);
    if (this.#arrivals.length === 0 || (last && time_s - last.time_s < SAMPLE_S)) return;
    const window_s = Math.min(WINDOW_S, time_s);
    const since_s = now_s - window_s;
    const before = this.#arrivals.findLast((arrival) => arrival.time_s <= since_s);
    const numNew = this.tokenIds.length - (before?.numTokens ?? 0);
    this.speeds.push({ time_s, rate: numNew / window_s });
  }

  /** Tokens a second behind the first chunk; null until a second one came. */
  get tokensPerSecond() {
    const first = this.#arrivals[0];
    const last = this.#arrivals.at(-1);
    if (!first || !last || last.time_s === first.time_s) return null;
    return (last.numTokens - first.numTokens) / (last.time_s - first.time_s);
  }

  /** Seconds from the request to the first chunk; null until it came. */
  get firstToken_s() {
    const first = this.#arrivals[0];
    return first ? first.time_s - this.#start_s : null;
  }

  /**
   * The text as a turn; of one that was stopped, what it said so far.
   * @returns {import("./conversation.js").Message}
   */
  get turn() {
    const said = [...this.text].slice(this.reasoningLen).join("").trimStart();
    return this.message ?? { role: "assistant", content: said };
  }

  /** Accepted of drafted tokens; null while none was drafted. */
  get acceptance() {
    const numDrafted = sum(this.rounds.map((round) => round.numDrafted));
    if (numDrafted === 0) return null;
    return sum(this.rounds.map((round) => round.accepted.length)) / numDrafted;
  }

  get tokensPerRound() {
    return this.rounds.length > 0 ? this.tokenIds.length / this.rounds.length : null;
  }
}

/**
 * The index of the first token in which two texts differ; null if they are the same.
 * @param {Tally} ours
 * @param {Tally} theirs
 */
export function firstDifference(ours, theirs) {
  const [one, other] = [ours.tokenIds, theirs.tokenIds];
  const at = one.findIndex((id, index) => id !== other[index]);
  if (at >= 0) return at;
  return one.length === other.length && ours.text === theirs.text ? null : one.length;
}

/**
 * @template T
 * @param {Map<T, number>} counts
 * @param {T} what
 */
function count(counts, what) {
  counts.set(what, (counts.get(what) ?? 0) + 1);
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
