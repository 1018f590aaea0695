/** One stream on the page: its coloured text and its figures. */

import { originOf } from "./origin.js";
import { Tally } from "./tally.js";
import { Thoughts } from "./thoughts.js";

const BOTTOM_PX = 24; // as near to the end counts as being there

export class Pane {
  #text;
  #end;
  #root;
  #thoughts;

  /** @param {HTMLElement} root a section as in the page */
  constructor(root) {
    this.#root = root;
    this.#text = /** @type {HTMLElement} */ (root.querySelector(".text"));
    this.#end = /** @type {HTMLElement} */ (root.querySelector(".end"));
    this.tally = new Tally(0);
    this.#thoughts = new Thoughts(this.#text);
    /** @type {Object<string, string>} what each reason for k means */
    this.reasons = {};
  }

  get isStreaming() {
    return this.#text.classList.contains("streaming");
  }

  /**
   * Empty it for a new stream.
   * @param {string} heading
   * @param {number} now_s
   */
  begin(heading, now_s) {
    const place = /** @type {HTMLElement} */ (this.#root.querySelector("h2"));
    place.textContent = heading;
    this.#text.replaceChildren();
    this.#thoughts = new Thoughts(this.#text);
    this.#text.classList.add("streaming");
    this.#end.textContent = "";
    this.tally = new Tally(now_s);
  }

  /**
   * @param {import("./api.js").Chunk} chunk
   * @param {number} now_s
   */
  add(chunk, now_s) {
    this.tally.add(chunk, now_s);
    const isAtBottom =
      this.#text.scrollTop + this.#text.clientHeight + BOTTOM_PX >= this.#text.scrollHeight;
    const why = chunk.k_reason ? `. ${this.#sentence(chunk.k_reason)}` : "";
    const round = this.tally.rounds.length;
    const { reasoning_len: reasoningLen = 0 } = chunk; // a prompt's continuation has no thoughts
    this.#thoughts.add(tokens(chunk, round, why), reasoningLen);
    if (isAtBottom) this.#text.scrollTop = this.#text.scrollHeight;
  }

  /**
   * The stream is over.
   * @param {string} reason
   */
  end(reason) {
    this.#text.classList.remove("streaming");
    const { firstToken_s, reasons, rounds } = this.tally;
    const facts = [reason];
    if (firstToken_s !== null) facts.push(`first token ${Math.round(firstToken_s * 1000)} ms`);
    facts.push(`${rounds.length} rounds`);
    const why = [...reasons].sort(([, a], [, b]) => b - a);
    this.#end.textContent = facts.join(" · ");
    if (why.length > 0) this.#end.append(" · k: ");
    why.forEach(([name, count], index) => {
      this.#end.append(index > 0 ? ", " : "", said(`${name} ${count}`, this.#sentence(name)));
    });
  }

  /**
   * What a reason for k means, once the server has said.
   * @param {string} reason
   */
  #sentence(reason) {
    return this.reasons[reason] ?? reason;
  }

  /** Show the figures of this moment. */
  draw() {
    const { tokensPerSecond, acceptance, tokensPerRound, tokenIds } = this.tally;
    this.#figure("speed", tokensPerSecond?.toFixed(tokensPerSecond < 100 ? 1 : 0));
    this.#figure(
      "acceptance",
      acceptance === null ? undefined : `${(acceptance * 100).toFixed(0)}%`,
    );
    this.#figure("per-round", tokensPerRound?.toFixed(2));
    this.#figure("tokens", String(tokenIds.length));
  }

  /**
   * @param {string} name
   * @param {string | undefined} text
   */
  #figure(name, text) {
    const place = /** @type {HTMLElement} */ (this.#root.querySelector(`.${name}`));
    const shown = text ?? "–";
    if (place.textContent !== shown) place.textContent = shown;
  }

  /** The tokens shown, for the conversation to keep. */
  copy() {
    return [...this.#text.childNodes].map((node) => node.cloneNode(true));
  }
}

/**
 * @param {import("./api.js").Chunk} chunk
 * @param {number} round
 * @param {string} why
 * @returns {{span: HTMLElement, text: string}[]}
 */
function tokens(chunk, round, why) {
  const origins = chunk.origins.map(originOf);
  const { num_drafted: drafted, num_accepted: accepted } = chunk;
  const counts = drafted > 0 ? `${accepted} of ${drafted} accepted` : "nothing drafted";
  return chunk.token_texts.flatMap((text, index) => {
    if (text === "") return []; // an end token, or part of a character
    const span = said(text, `${origins[index]} · round ${round}: ${counts}${why}`);
    span.className = `token ${origins[index]}`;
    span.dataset.round = String(round);
    return [{ span, text }];
  });
}

/**
 * Text that explains itself where the pointer or a finger is.
 * @param {string} text
 * @param {string} says
 */
function said(text, says) {
  const span = document.createElement("span");
  span.className = "why";
  span.textContent = text;
  span.dataset.says = says;
  span.tabIndex = -1; // a finger gives it the focus, the Tab key does not stop there
  return span;
}
