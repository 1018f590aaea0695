/**
 * Two small charts: lines over time, bars over rounds. Plain SVG paths in a box that is stretched
 * to its place, so labels are HTML around it. Colours are the style sheet's.
 *
 * @typedef {import("./tally.js").Round} Round
 * @typedef {import("./tally.js").Speed} Speed
 */

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 320; // of the view box, as in the page
const HEIGHT = 96;
const MAX_ROUNDS = 160; // the latest ones
const LEAST_ROUNDS = 40; // room for so many from the beginning, so that bars stay put at first

/** A figure with an <svg> and elements of the classes `top`, `from` and `to` for its labels. */
class Chart {
  /** @param {HTMLElement} figure */
  constructor(figure) {
    this.svg = /** @type {SVGElement} */ (figure.querySelector("svg"));
    this.figure = figure;
    /** @type {Map<string, SVGElement>} */
    this.paths = new Map();
  }

  /**
   * @param {string} name of the path: its class
   * @param {string} d
   */
  path(name, d) {
    let path = this.paths.get(name);
    if (!path) {
      path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      this.svg.append(path);
      this.paths.set(name, path);
    }
    path.setAttribute("d", d);
  }

  /** @param {{top: string, from: string, to: string}} labels */
  label(labels) {
    for (const [name, text] of Object.entries(labels)) {
      const place = /** @type {HTMLElement} */ (this.figure.querySelector(`.${name}`));
      if (place.textContent !== text) place.textContent = text;
    }
  }
}

/** Tokens a second over time, one line a stream. */
export class SpeedChart extends Chart {
  /** @param {Record<string, readonly Speed[]>} lines by class name */
  draw(lines) {
    const all = Object.values(lines).flat();
    const end_s = Math.max(1, ...all.map((speed) => speed.time_s));
    const top = roundedUp(Math.max(10, ...all.map((speed) => speed.rate)));
    for (const name of [...this.paths.keys(), ...Object.keys(lines)]) {
      const points = (lines[name] ?? []).map(({ time_s, rate }) => {
        return `${at((time_s / end_s) * WIDTH)} ${at(HEIGHT * (1 - rate / top))}`;
      });
      this.path(name, points.length > 1 ? `M${points.join("L")}` : "");
    }
    this.label({ top: String(top), from: "0", to: `${end_s.toFixed(1)} s` });
  }
}

/** Drafted and accepted tokens of each round. */
export class RoundChart extends Chart {
  /** @param {readonly Round[]} rounds */
  draw(rounds) {
    const shown = rounds.slice(-MAX_ROUNDS);
    const top = Math.max(4, ...shown.map((round) => round.numDrafted));
    const step = WIDTH / Math.max(LEAST_ROUNDS, shown.length);
    const bars = new Map(["drafted", ...this.paths.keys()].map((name) => [name, ""]));
    shown.forEach(({ numDrafted, accepted }, index) => {
      const bar = (/** @type {string} */ name, /** @type {number} */ count, from = 0) => {
        if (count === 0) return;
        const [base, height] = [HEIGHT * (1 - from / top), (count / top) * HEIGHT];
        const d = `M${at(index * step)} ${at(base)}v${at(-height)}h${at(step * 0.76)}v${at(height)}z`;
        bars.set(name, (bars.get(name) ?? "") + d);
      };
      bar("drafted", numDrafted);
      accepted.forEach((origin, from) => bar(origin, 1, from));
    });
    for (const [name, d] of bars) this.path(name, d);
    const first = rounds.length - shown.length + 1;
    this.label({ top: String(top), from: `round ${first}`, to: String(rounds.length) });
  }
}

/**
 * The next round number: an axis that does not change with every frame.
 * @param {number} value
 */
function roundedUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 1.5, 2, 2.5, 3, 4, 5, 6, 8].find((factor) => factor * power >= value) ?? 10);
}

/** @param {number} coordinate */
function at(coordinate) {
  return coordinate.toFixed(1);
}
