"use strict";
/**
 * A plot: a drawing as wide as its place, with scales, axes and a tip under the pointer. Drawn anew
 * when the place changes its width, so that letters keep their size. Colours are the style sheet's.
 */

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 46, right: 8, bottom: 20 };

/** @param {string} name @param {Record<string, string | number>} attributes @param {string} text */
function shape(name, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.textContent = text;
  return element;
}

class Plot {
  /**
   * @param {HTMLElement} figure
   * @param {number} height of what is drawn, without axes
   * @param {number} top room above it
   */
  constructor(figure, height, top = 8) {
    this.width = Math.max(120, figure.clientWidth - MARGIN.left - MARGIN.right);
    this.height = height;
    figure.querySelector("svg")?.remove();
    const size = { width: figure.clientWidth, height: top + height + MARGIN.bottom };
    const box = shape("svg", { viewBox: `0 0 ${size.width} ${size.height}`, role: "img" });
    box.style.height = `${size.height}px`;
    box.setAttribute("aria-label", figure.querySelector("figcaption")?.textContent?.trim() ?? "");
    this.group = shape("g", {
      transform: `translate(${MARGIN.left} ${top})`,
      class: figure.dataset.chart ?? "",
    });
    box.append(this.group);
    figure.append(box);
    this.box = box;
    this.x = (/** @type {number} */ value) => value;
    this.y = (/** @type {number} */ value) => value;
  }

  /** @param {[number, number]} x @param {[number, number]} y */
  scale(x, y) {
    this.x = (value) => ((value - x[0]) / (x[1] - x[0])) * this.width;
    this.y = (value) => this.height - ((value - y[0]) / (y[1] - y[0])) * this.height;
  }

  /** @param {string} name @param {Record<string, string | number>} attributes @param {string} text */
  add(name, attributes, text = "") {
    const element = shape(name, attributes, text);
    this.group.append(element);
    return element;
  }

  /** @param {[number, number]} range @param {string} unit behind the last number */
  axisX(range, unit) {
    const y = this.height;
    this.add("line", { class: "axis", x1: 0, x2: this.width, y1: y, y2: y });
    const ticks = ticksOf(range, Math.max(3, this.width / 90));
    for (const value of ticks) {
      const x = this.x(value);
      const isLast = value === ticks[ticks.length - 1];
      const anchor = x > this.width - 24 ? "end" : x < 10 ? "start" : "middle";
      const text = isLast ? `${value} ${unit}` : String(value);
      this.add("text", { x, y: y + 15, "text-anchor": anchor }, text);
    }
  }

  /** @param {[number, number]} range @param {(value: number) => string} written */
  axisY(range, written = String) {
    for (const value of ticksOf(range, 3)) {
      const y = this.y(value);
      if (value > range[0]) this.add("line", { class: "grid", x1: 0, x2: this.width, y1: y, y2: y });
      this.add("text", { x: -8, y: y + 4, "text-anchor": "end" }, written(value));
    }
  }

  /** What to say where the pointer is. @param {(x: number, y: number) => string | null} said */
  tip(said) {
    const tip = /** @type {HTMLElement} */ (document.getElementById("tip"));
    this.box.addEventListener("pointerleave", () => (tip.hidden = true));
    this.box.addEventListener("pointermove", (event) => {
      const place = this.box.getBoundingClientRect();
      const top = Number(this.group.transform.baseVal[0].matrix.f);
      const text = said(event.clientX - place.left - MARGIN.left, event.clientY - place.top - top);
      tip.hidden = text === null;
      if (text === null) return;
      tip.textContent = text;
      const most = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = `${Math.max(4, Math.min(most, event.clientX + 14)) + scrollX}px`;
      tip.style.top = `${event.clientY + 16 + scrollY}px`;
    });
  }
}

/**
 * Round numbers in a range, about so many.
 * @param {[number, number]} range
 * @param {number} count
 */
function ticksOf([low, high], count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10) * power;
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-9); n += 1) {
    ticks.push(Number((n * step).toPrecision(12)));
  }
  return ticks;
}

/** Three digits. @param {number} value */
function short(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, Math.min(3, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return value.toFixed(digits);
}
