/**
 * Where a token came from. The names are class names of the style sheet too.
 *
 * @typedef {"accepted" | "ngram" | "prediction" | "recovered" | "bonus" | "plain"} Origin
 */

/** @type {readonly Origin[]} */
export const ORIGINS = ["accepted", "ngram", "prediction", "recovered", "bonus", "plain"];

/** @type {Record<string, Origin>} */
const PROPOSED_BY = { ngram: "ngram", prediction: "prediction" };

/**
 * Who proposed in the chunk's round, as the origin of what was accepted.
 * @param {import("./api.js").Chunk} chunk
 * @returns {Origin}
 */
export function proposerOf(chunk) {
  return PROPOSED_BY[chunk.drafter] ?? "accepted"; // also by a drafter that is newer than this page
}

/**
 * The origin of each of a chunk's tokens. Those behind the accepted ones the target drew itself.
 * @param {import("./api.js").Chunk} chunk
 * @returns {Origin[]}
 */
export function originsOf(chunk) {
  const own = ownDraw(chunk);
  const proposer = proposerOf(chunk);
  return chunk.token_ids.map((_, index) => (index < chunk.num_accepted ? proposer : own));
}

/**
 * @param {import("./api.js").Chunk} chunk
 * @returns {Origin}
 */
function ownDraw(chunk) {
  if (chunk.num_drafted === 0) return "plain";
  return chunk.num_accepted < chunk.num_drafted ? "recovered" : "bonus";
}
