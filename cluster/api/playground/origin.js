/**
 * Where a token came from. The names are class names of the style sheet too.
 *
 * @typedef {"draft" | "ngram" | "suffix" | "prediction" | "recovered" | "bonus" | "plain"} Origin
 */

/** @type {readonly Origin[]} */
export const DRAFTERS = ["draft", "ngram", "suffix", "prediction"];

/** @type {readonly Origin[]} */
export const ORIGINS = [...DRAFTERS, "recovered", "bonus", "plain"];

/**
 * @param {string} word the server's
 * @returns {Origin}
 */
export function originOf(word) {
  return ORIGINS.find((origin) => origin === word) ?? "draft"; // a drafter newer than this page
}
