"use strict";
/** The charts of the report, each drawn into its figure from its part of the data. */

/** Bars of a latency, percentiles and the objective as lines through them. */
function drawBars(figure, bars, objective) {
  const plot = new Plot(figure, 120, objective === undefined ? 42 : 54);
  const end = bars.start + bars.step * bars.counts.length;
  const range = [bars.start, Math.max(end, 1e-9)];
  const top = Math.max(1, ...bars.counts) * 1.04;
  plot.scale(range, [0, top]);
  plot.axisY([0, top], (value) => (Number.isInteger(value) ? String(value) : ""));
  plot.axisX(range, "ms");
  const elements = bars.counts.map((count, index) => {
    const x = plot.x(bars.start + index * bars.step);
    const width = Math.max(1, plot.x(bars.start + (index + 1) * bars.step) - x - 1);
    const y = plot.y(count);
    return plot.add("rect", { class: "bar", x, y, width, height: plot.height - y });
  });
  if (objective !== undefined) {
    drawMark(plot, objective, `objective ${short(objective)}`, -42, "objective", end);
  }
  Object.entries(bars.marks).forEach(([name, value], row) => {
    drawMark(plot, value, `${name} ${short(value)}`, 12 * row - 30, "mark", end);
  });
  const beyond = figure.querySelector(".beyond") ?? document.createElement("small");
  beyond.className = "beyond";
  beyond.textContent = bars.beyond ? `${bars.beyond} further right, to ${short(bars.most)}` : "";
  figure.querySelector("figcaption").append(beyond);
  plot.tip((x) => {
    const index = Math.floor((x / plot.width) * bars.counts.length);
    elements.forEach((element, at) => element.classList.toggle("lit", at === index));
    if (!(index in bars.counts)) return null;
    const low = bars.start + index * bars.step;
    return `${short(low)}–${short(low + bars.step)} ms: ${bars.counts[index]}`;
  });
}

/** A line through the bars, with its name beside; none where it would lie outside. */
function drawMark(plot, value, text, y, kind, end) {
  if (value > end) return;
  const x = plot.x(value);
  const isRight = x > plot.width - 78;
  plot.add("line", { class: kind, x1: x, x2: x, y1: y - 8, y2: plot.height });
  const place = { x: x + (isRight ? -5 : 5), y, "text-anchor": isRight ? "end" : "start" };
  plot.add("text", { class: kind, ...place }, text);
}

/** Tokens a second over time. */
function drawTokens(figure, line) {
  const plot = new Plot(figure, 130);
  const end = Math.max(line.duration, 1e-3);
  const top = Math.max(1, ...line.tokens) * 1.08;
  plot.scale([0, end], [0, top]);
  plot.axisY([0, top]);
  plot.axisX([0, end], "s");
  let path = `M0 ${plot.y(line.tokens[0])}`;
  line.tokens.forEach((rate, index) => {
    path += `V${plot.y(rate).toFixed(1)}H${plot.x(Math.min(end, (index + 1) * line.step)).toFixed(1)}`;
  });
  plot.add("path", { class: "area", d: `${path}V${plot.height}H0Z` });
  plot.add("path", { class: "line", d: path });
  const cursor = plot.add("line", { class: "cursor", y1: 0, y2: plot.height, visibility: "hidden" });
  plot.box.addEventListener("pointerleave", () => cursor.setAttribute("visibility", "hidden"));
  plot.tip((x) => {
    const index = Math.floor(((x / plot.width) * end) / line.step);
    const isInside = x >= 0 && index in line.tokens;
    cursor.setAttribute("visibility", isInside ? "visible" : "hidden");
    if (!isInside) return null;
    cursor.setAttribute("x1", String(x));
    cursor.setAttribute("x2", String(x));
    const from = index * line.step;
    return (
      `${short(from)}–${short(from + line.step)} s\n${short(line.tokens[index])} tokens/s\n` +
      `${short(line.open[index])} requests open\n${line.ended[index]} answered`
    );
  });
}

/** Each request a bar on the first free line: waiting, then writing. */
function drawLanes(figure, requests, duration) {
  const numLanes = 1 + Math.max(0, ...requests.map((request) => request.lane));
  const pitch = Math.max(1.5, Math.min(16, 420 / numLanes));
  const plot = new Plot(figure, numLanes * pitch);
  const end = Math.max(duration, 1e-3);
  plot.scale([0, end], [numLanes, 0]);
  const gap = pitch > 4 ? 2 : pitch / 5;
  for (const request of requests) {
    const group = plot.add("g", { class: "request" });
    const y = request.lane * pitch + gap / 2;
    const bar = (kind, from, to) => {
      const x = plot.x(from);
      const least = kind === "failed" ? 3 : 1; // a refusal is quick, and must be seen
      const width = Math.max(least, plot.x(to) - x - (kind === "waiting" ? 0 : 1));
      group.append(shape("rect", { class: kind, x, y, width, height: pitch - gap, rx: 1 }));
    };
    if (request.failure) {
      bar("failed", request.sent, request.end);
    } else {
      bar("waiting", request.sent, request.first);
      bar("writing", request.first, request.end);
    }
  }
  plot.axisX([0, end], "s");
  plot.add("text", { x: -8, y: pitch - 3, "text-anchor": "end" }, numLanes > 1 ? "1" : "");
  plot.add("text", { x: -8, y: plot.height - 3, "text-anchor": "end" }, String(numLanes));
  plot.tip((x, y) => {
    const [time, lane] = [(x / plot.width) * end, Math.floor(y / pitch)];
    const found = requests.find((r) => r.lane === lane && r.sent <= time && time <= r.end);
    return found ? saidOf(found) : null;
  });
}

/** A request in a few lines. */
function saidOf(request) {
  const tokens = `${request.input ?? "?"} tokens in, ${request.output} out`;
  const first = request.first === null ? "none" : `${short((request.first - request.sent) * 1e3)} ms`;
  return (
    `request ${request.index}${request.failure ? `: ${request.failure}` : ""}\n${tokens}\n` +
    `first token ${first}\nwhole ${short((request.end - request.sent) * 1e3)} ms`
  );
}

/** Steps by how many drafted tokens they accepted, or positions by how often they were. */
function drawAccepted(figure, accepted) {
  const plot = new Plot(figure, 110, 18);
  const count = accepted.shares.length;
  const top = Math.max(0.01, ...accepted.shares);
  plot.scale([0, count], [0, top]);
  plot.add("line", { class: "axis", x1: 0, x2: plot.width, y1: plot.height, y2: plot.height });
  accepted.shares.forEach((share, index) => {
    const width = Math.min(64, plot.x(1) - 6);
    const [x, y] = [plot.x(index + 0.5) - width / 2, plot.y(share)];
    plot.add("rect", { class: "bar", x, y, width, height: plot.height - y, rx: 2 });
    const middle = { x: x + width / 2, "text-anchor": "middle" };
    const text = share === 0 ? "0" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
    plot.add("text", { class: "value", ...middle, y: y - 5 }, text);
    const label = String(accepted.by === "count" ? index : index + 1);
    plot.add("text", { ...middle, y: plot.height + 15 }, label);
  });
}
