--- What zooms a figure whose x is a time: JavaScript, without which it is all there at once.
--
-- A figure says in its data-x what its axis is: kind, from, to; left and width of the plots in the
-- picture.  Each plot is an <svg> in the picture's <svg>, so that a part of it is its viewBox; what
-- stands at the axis is written anew, as neap.lab.axis does.

local axis = require "neap.lab.axis"

local script = [[

"use strict";
(function () {
  var STEPS = [%s], SECOND = 1000, MINUTE = 60000, HOUR = 3600000, DAY = 86400000, LEAST = 1 / 500;
  function pad(n, digits) { return String(n).padStart(digits || 2, "0"); }
  function digits(step) { return step >= SECOND ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3; }
  function seconds(ms, step) {
    var d = digits(step);
    return (ms / SECOND).toFixed(d).padStart(d ? 3 + d : 2, "0");
  }
  function clock(at, step) {
    var date = new Date(at);
    if (at %% DAY === 0) {
      return date.toLocaleString("en", { month: "short", timeZone: "UTC" }) + " "
        + pad(date.getUTCDate());
    }
    return date.toISOString().slice(11, 16) + (step >= MINUTE ? "" : ":"
      + seconds(at %% MINUTE, step));
  }
  function elapsed(at, step) {
    if (at < 0) return "−" + elapsed(-at, step);
    if (step >= DAY) return Math.floor(at / DAY) + " d";
    var hours = Math.floor(at / HOUR), minutes = Math.floor(at / MINUTE) %% 60;
    if (step >= MINUTE && at %% MINUTE === 0) {
      if (!hours && step < 10 * MINUTE) return minutes + " min";
      return hours + ":" + pad(minutes) + " h";
    }
    if (!hours && !minutes && step < SECOND) return (at / SECOND).toFixed(digits(step)) + " s";
    return (hours ? hours + ":" + pad(minutes) : minutes) + ":" + seconds(at %% MINUTE, step);
  }
  function ticks(x, from, to) {
    var step = STEPS.find(function (one) { return (to - from) / one <= 8; });
    var found = [], text = x.kind === "clock" ? clock : elapsed;
    step = step || DAY * Math.ceil((to - from) / DAY / 8);
    for (var i = Math.ceil(from / step); i <= Math.floor(to / step); i++) {
      found.push([i * step, text(i * step, step)]);
    }
    return found;
  }
  function set(node, values) {
    for (var name in values) node.setAttribute(name, values[name]);
    return node;
  }
  function zoomable(figure) {
    var x = JSON.parse(figure.dataset.x), picture = figure.querySelector(".plot > svg");
    var plots = picture.querySelectorAll("svg"), axis = picture.querySelector(".axis");
    var grid = axis.querySelector("path"), label = axis.querySelector("text");
    var from = x.from, to = x.to, least = (x.to - x.from) * LEAST, buttons = [];
    if (!grid) return;
    var bar = document.createElement("div"), says = document.createElement("span");
    function px(at) { return x.left + (at - from) / (to - from) * x.width; }
    function draw() {
      plots.forEach(function (plot) {
        var box = plot.viewBox.baseVal, units = +plot.dataset.units;
        box.x = (from - x.from) / (x.to - x.from) * units;
        box.width = (to - from) / (x.to - x.from) * units;
      });
      axis.textContent = "";
      ticks(x, from, to).forEach(function (tick) {
        var at = px(tick[0]).toFixed(1), text = set(label.cloneNode(false), { x: at });
        text.textContent = tick[1];
        axis.append(set(grid.cloneNode(false), { transform: "translate(" + at + ")" }), text);
      });
      picture.querySelectorAll("[data-at]").forEach(function (text) {
        var at = +text.dataset.at;
        text.style.display = at >= from && at <= to ? "" : "none";
        set(text, { x: px(at).toFixed(1) });
      });
      var whole = from <= x.from && to >= x.to;
      buttons.forEach(function (button) {
        button.disabled = button.dataset.needs === "part" && whole;
      });
      says.textContent = whole ? "drag over the picture to look closer"
        : "a part of the time is shown";
    }
    function go(a, b) {
      var width = Math.min(Math.max(b - a, least), x.to - x.from);
      from = Math.min(Math.max((a + b - width) / 2, x.from), x.to - width);
      to = from + width;
      draw();
    }
    function button(text, title, needs, f) {
      var made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      made.title = title;
      made.dataset.needs = needs;
      made.setAttribute("aria-label", title);
      made.addEventListener("click", f);
      buttons.push(made);
      bar.append(made);
    }
    function by(share) {
      return function () { var d = (to - from) * share; go(from + d, to + d); };
    }
    function closer() { var d = (to - from) / 4; go(from + d, to - d); }
    function wider() { var d = (to - from) / 2; go(from - d, to + d); }
    function whole() { go(x.from, x.to); }
    bar.className = "zoom";
    button("+", "closer", "", closer);
    button("−", "less close", "part", wider);
    button("◀", "earlier", "part", by(-0.5));
    button("▶", "later", "part", by(0.5));
    button("all", "the whole time", "part", whole);
    says.setAttribute("aria-live", "polite");
    bar.append(says);
    figure.querySelector(".plot").after(bar);
    var began = null, picked = picture.querySelector(".picked");
    function at(event) {
      var box = picture.getBoundingClientRect();
      var unit = (event.clientX - box.left) / box.width * picture.viewBox.baseVal.width;
      return Math.min(Math.max(from + (unit - x.left) / x.width * (to - from), from), to);
    }
    picture.addEventListener("pointerdown", function (event) {
      if (event.pointerType !== "mouse" || event.button) return;
      began = at(event);
      picture.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    picture.addEventListener("pointermove", function (event) {
      if (began === null) return;
      var a = px(Math.min(began, at(event))), b = px(Math.max(began, at(event)));
      set(picked, { x: a, width: b - a });
    });
    picture.addEventListener("pointerup", function (event) {
      if (began === null) return;
      var a = Math.min(began, at(event)), b = Math.max(began, at(event));
      began = null;
      set(picked, { width: 0 });
      if (px(b) - px(a) > 4) go(a, b);
    });
    picture.addEventListener("dblclick", whole);
    draw();
  }
  document.querySelectorAll("figure[data-x]").forEach(zoomable);
})();
]]

return script:format(table.concat(axis.STEPS_MS, ", "))
