"use strict";
/** Draws the report's charts when it is opened, and anew when its width changes. */

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const figures = {};
  for (const figure of document.querySelectorAll("[data-chart]")) {
    figures[figure.dataset.chart] = figure;
  }

  if (data.together !== null) {
    const share = `${(data.together * 100).toFixed(0)} % came with another: 0 ms, not drawn`;
    document.querySelector("[data-together]").textContent = share;
  }
  if (data.accepted) {
    document.getElementById("speculation").hidden = false;
    figures.accepted.querySelector("figcaption").textContent =
      data.accepted.by === "count"
        ? "Steps by the number of drafted tokens they accepted"
        : "Steps that accepted the drafted token at each position";
  }

  function draw() {
    for (const name of ["ttft", "itl", "tpot", "e2el"]) {
      if (data[name]) drawBars(figures[name], data[name], data.objectives[name]);
      else figures[name].classList.add("nothing");
    }
    drawTokens(figures.tokens, data.timeline);
    drawLanes(figures.lanes, data.requests, data.timeline.duration);
    if (data.accepted) drawAccepted(figures.accepted, data.accepted);
  }

  let width = 0;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    draw();
  }).observe(document.body);
})();
