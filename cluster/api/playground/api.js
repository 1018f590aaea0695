/**
 * The server as this page calls it. Holds the key, in memory only.
 *
 * @typedef {object} Start
 * @property {"start"} type
 * @property {string} id
 * @property {number[]} num_prompt_tokens
 *
 * @typedef {object} Chunk
 * @property {"chunk"} type
 * @property {string} text
 * @property {number[]} token_ids
 * @property {string[]} token_texts what each token added to `text`
 * @property {string[]} origins of each token: whose it was
 * @property {number} num_drafted
 * @property {number} num_accepted
 * @property {string} k_reason
 * @property {import("./tree.js").Tree} [tree] where something was proposed
 * @property {string | null} finish_reason
 * @property {number | null} [reasoning_len] of a chat: characters of the text so far, from its
 *   beginning, that are thoughts; null while it is not known what it begins with
 * @property {import("./conversation.js").Message} [message] with the last: the text as a turn
 *
 * @typedef {{type: "end"}} End
 * @typedef {{type: "error", error: ErrorDetail}} Failure
 * @typedef {{message: string, code?: string | null, param?: string | null}} ErrorDetail
 *
 * @typedef {object} Capabilities what this page needs of them
 * @property {{name: string, max_model_len: number}} model
 * @property {{default_verification: string, k_reasons: Object<string, string>}} speculation
 */

import { EventStreamParser } from "./event_stream.js";

/** A refusal or failure in the server's own words. */
export class ServerError extends Error {
  /**
   * @param {ErrorDetail} detail
   * @param {number | null} status of HTTP; null once the answer has begun
   */
  constructor(detail, status = null) {
    super(detail.message);
    this.code = detail.code ?? null;
    this.status = status;
  }
}

export class Api {
  key = "";

  /** @returns {Promise<Capabilities>} */
  async capabilities() {
    const reply = await fetch("capabilities", { headers: this.#headers(), credentials: "omit" });
    if (!reply.ok) throw await refusal(reply);
    return await reply.json();
  }

  /**
   * Generate; the first event is `start`. Raises ServerError, also if the stream breaks off.
   * @param {string} body JSON
   * @param {AbortSignal} signal
   * @returns {AsyncGenerator<Start | Chunk, void>}
   */
  async *generate(body, signal) {
    const headers = { ...this.#headers(), "Content-Type": "application/json" };
    const options = { method: "POST", headers, body, signal };
    const reply = await fetch("v1/generate", { ...options, credentials: "omit" });
    if (!reply.ok || reply.body === null) throw await refusal(reply);
    for await (const data of events(reply.body)) {
      const event = /** @type {Start | Chunk | End | Failure} */ (JSON.parse(data));
      if (event.type === "error") throw new ServerError(event.error);
      if (event.type === "end") return;
      yield event;
    }
    throw new ServerError({
      message: "The stream broke off before its end",
      code: "broken_stream",
    });
  }

  /** @returns {Record<string, string>} */
  #headers() {
    return this.key === "" ? {} : { Authorization: `Bearer ${this.key}` };
  }
}

/**
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<string, void>}
 */
async function* events(body) {
  const parser = new EventStreamParser();
  const reader = body.getReader(); // not every browser iterates over streams
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield* parser.push(value);
    }
  } finally {
    reader.cancel().catch(() => {}); // of a stream that has failed: the failure was told already
  }
}

/**
 * @param {Response} reply
 * @returns {Promise<ServerError>}
 */
async function refusal(reply) {
  const text = await reply.text();
  try {
    return new ServerError(JSON.parse(text).error, reply.status);
  } catch {
    // Not our envelope: a proxy in between has answered.
    return new ServerError({ message: text || reply.statusText }, reply.status);
  }
}
