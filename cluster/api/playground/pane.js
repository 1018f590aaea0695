/** One stream on the page: its coloured text and its figures. */

import { originsOf } from "./origin.js";
import { Tally } from "./tally.js";

const BOTTOM_PX = 24; // as near to the end counts as being there

export class Pane {
  #text;
  #end;
  #root;

  /** @param {HTMLElement} root a section as in the page */
  constructor(root) {
    this.#root = root;
    this.#text = /** @type {HTMLElement} */ (root.querySelector(".text"));
    this.#end = /** @type {HTMLElement} */ (root.querySelector(".end"));
    this.tally = new Tally(0);
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
    this.#text.append(...tokens(chunk, this.tally.rounds.length));
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
    const why = [...reasons]
      .sort(([, a], [, b]) => b - a)
      .map(([name, count]) => `${name} ${count}`);
    if (why.length > 0) facts.push(`k: ${why.join(", ")}`);
    this.#end.textContent = facts.join(" · ");
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
 * @returns {HTMLElement[]}
 */
function tokens(chunk, round) {
  const origins = originsOf(chunk);
  const { num_drafted: drafted, num_accepted: accepted, k_reason: reason } = chunk;
  const counts = drafted > 0 ? `${accepted} of ${drafted} accepted` : "nothing drafted";
  const why = reason ? `, ${reason}` : "";
  return chunk.token_texts.flatMap((text, index) => {
    if (text === "") return []; // an end token, or part of a character
    const span = document.createElement("span");
    span.className = `token ${origins[index]}`;
    span.textContent = text;
    span.title = `${origins[index]} · round ${round}: ${counts}${why}`;
    return [span];
  });
}
