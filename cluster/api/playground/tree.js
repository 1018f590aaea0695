/**
 * What was proposed in one round, as a tree: columns by depth, what was accepted in its colour, what
 * was not in grey.
 *
 * @typedef {object} Tree
 * @property {number[]} token_ids
 * @property {string[]} token_texts
 * @property {number[]} parents of each token, an earlier one; -1 is the text before
 * @property {string[]} drafters of each token
 * @property {number[]} accepted which of the tokens, in the order of the text
 */

import { originOf } from "./origin.js";

const SVG = "http://www.w3.org/2000/svg";
const COLUMN = 88; // pixels
const LINE = 18;
const MOST_LETTERS = 9;

export class TreeChart {
  #figure;
  #svg;
  #which;
  /** @type {Tree | null} */
  #shown = null;

  /** @param {HTMLElement} figure with an <svg> and an element of the class `which` */
  constructor(figure) {
    this.#figure = figure;
    this.#svg = /** @type {SVGElement} */ (figure.querySelector("svg"));
    this.#which = /** @type {HTMLElement} */ (figure.querySelector(".which"));
  }

  /**
   * @param {Tree | null} tree
   * @param {number} round
   */
  draw(tree, round) {
    if (tree === this.#shown) return;
    this.#shown = tree;
    this.#figure.hidden = tree === null;
    if (tree === null) return;
    const count = `${tree.accepted.length} of ${tree.parents.length} accepted`;
    this.#which.textContent = `round ${round}: ${count}`;
    const places = placesOf(tree.parents);
    const accepted = new Set(tree.accepted);
    const lines = tree.parents.map((parent, node) => {
      const from = parent < 0 ? { column: -1, line: 0 } : places[parent];
      const { column, line } = places[node];
      const x = 12 + column * COLUMN;
      const start = from.column < 0 ? 0 : x - COLUMN + width(tree.token_texts[parent]) + 3;
      const [y, above] = [middle(line), middle(from.line)];
      const path = element("path", { d: `M${start} ${above}H${x - 9}V${y}H${x - 3}` });
      path.setAttribute("class", accepted.has(node) ? "kept" : "wasted");
      return path;
    });
    const words = tree.token_texts.map((text, node) => {
      const { column, line } = places[node];
      const word = element("text", { x: String(12 + column * COLUMN), y: String(middle(line) + 4) });
      const origin = originOf(tree.drafters[node]);
      word.setAttribute("class", accepted.has(node) ? `kept ${origin}` : "wasted");
      word.textContent = shortened(text);
      const says = element("title", {});
      const fate = accepted.has(node) ? "accepted" : "not accepted";
      says.textContent = `${JSON.stringify(text)}: from ${tree.drafters[node]}, ${fate}`;
      word.append(says);
      return word;
    });
    const columns = 1 + Math.max(...places.map(({ column }) => column));
    const height = LINE * (1 + Math.max(...places.map(({ line }) => line)));
    this.#svg.setAttribute("width", String(12 + columns * COLUMN));
    this.#svg.setAttribute("height", String(height));
    this.#svg.replaceChildren(...lines, ...words);
  }
}

/**
 * Each node's column, its depth, and its line: the first child's is its parent's.
 * @param {number[]} parents
 * @returns {{column: number, line: number}[]}
 */
export function placesOf(parents) {
  /** @type {number[][]} */
  const children = parents.map(() => []);
  /** @type {number[]} */
  const first = [];
  parents.forEach((parent, node) => (parent < 0 ? first : children[parent]).push(node));
  /** @type {{column: number, line: number}[]} */
  const places = [];
  let next = 0;
  /**
   * @param {number[]} nodes
   * @param {number} column
   */
  const place = (nodes, column) => {
    for (const node of nodes) {
      places[node] = { column, line: next };
      if (children[node].length === 0) next += 1;
      else place(children[node], column + 1);
    }
  };
  place(first, 0);
  return places;
}

/** @param {number} line */
function middle(line) {
  return LINE * line + LINE / 2;
}

/** @param {string} text */
function shortened(text) {
  const shown = text.replaceAll("\n", "⏎").replaceAll(" ", "·") || "∅";
  const letters = [...shown];
  return letters.length > MOST_LETTERS ? `${letters.slice(0, MOST_LETTERS - 1).join("")}…` : shown;
}

/** @param {string} text */
function width(text) {
  return 7.3 * [...shortened(text)].length; // of the page's fixed-width letters
}

/**
 * @param {string} name
 * @param {Record<string, string>} attributes
 */
function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
