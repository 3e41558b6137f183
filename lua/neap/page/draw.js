// draw.js: elements, and numbers and instants as people read them. Data becomes text, never markup.

const $ = id => document.getElementById(id);

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}

/** An element; its children are elements and texts. */
const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
const svg = (tag, properties, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);

/** Sets a text only where it changes: what stays is not painted again, nor read out. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function mark(element, name, value) {
  if (value == null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// ---- Numbers ------------------------------------------------------------------------------------

const whole_form = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
function number(n) {
  if (n < 1000 && Number.isInteger(n)) return String(n);
  return n >= 100 || Number.isInteger(n) ? whole_form.format(n) : String(Number(n.toPrecision(2)));
}
function percent(share) {
  const n = share * 100;
  return (n > 0 && n < 1 ? "< 1" : n > 99 && n < 100 ? "> 99" : String(Math.round(n))) + " %";
}
function counted(n, noun) {
  return `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** 4200 -> "4.2 s"; whole ones from ten on. */
function lasting(ms) {
  for (const [unit, name] of [
    [86400000, "d"],
    [3600000, "h"],
    [60000, "min"],
    [1000, "s"],
  ]) {
    if (ms >= unit)
      return `${ms < 10 * unit ? Number((ms / unit).toPrecision(2)) : Math.round(ms / unit)} ${name}`;
  }
  return Math.round(ms) + " ms";
}

/** "3 min ago", in whole units: it is said again every second. */
function ago(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  return s < 86400 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";
}

/** "4 s" until then; what is over is soon. */
function until(at) {
  return ago(at - now_ms() + 999);
}

const clock_form = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const day_form = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
function clock(at) {
  const date = new Date(at - live.ahead_ms),
    text = clock_form.format(date);
  return date.toDateString() === new Date().toDateString()
    ? text
    : day_form.format(date) + " " + text;
}

// ---- Signs and bars -----------------------------------------------------------------------------

/** Shapes, so that no state is told by its colour alone. */
const SIGNS = {
  open: () => [svg("rect", { x: 2, y: 2, width: 12, height: 12, rx: 2, class: "full" })],
  half: () => [
    svg("circle", { cx: 8, cy: 8, r: 6 }),
    svg("path", { d: "M8 2a6 6 0 0 1 0 12z", class: "full" }),
  ],
  hand: () => [svg("path", { d: "M8 1.8 14.2 8 8 14.2 1.8 8z" })],
  well: () => [svg("circle", { cx: 8, cy: 8, r: 6 }), svg("path", { d: "m5.2 8.2 2 2 3.6-4" })],
};
function sign(look) {
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, ...SIGNS[look]());
}

const BAR_TOP = 24;

function bars() {
  return svg(
    "svg",
    { viewBox: `0 0 ${live.steps} ${BAR_TOP}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...SERIES.map(name => svg("path", { class: name })),
  );
}

/** The most calls in a step. */
function most_of(ring) {
  let most = 0;
  for (let i = 0; i < ring.length; i += SERIES.length)
    most = Math.max(most, ring[i] + ring[i + 1] + ring[i + 2] + ring[i + 3]);
  return most;
}

/** Draws the ring: a bar for each step, what went well at the bottom, refused on top. */
function draw_bars(into, ring) {
  const most = most_of(ring),
    paths = SERIES.map(() => "");
  for (let step = 0; most > 0 && step < live.steps; step++) {
    let y = BAR_TOP;
    SERIES.forEach((_, i) => {
      const n = ring[step * SERIES.length + i];
      if (n === 0) return;
      const height = Math.max(0.6, (n / most) * (BAR_TOP - 1)); // one of a thousand is seen, too
      y -= height;
      paths[i] += `M${step + 0.1} ${y.toFixed(2)}h.8v${height.toFixed(2)}h-.8z`;
    });
  }
  paths.forEach((path, i) => mark(into.children[i], "d", path));
  return most;
}

/** Calls of a series, or of all, in a second of the last whole step. */
function rate(row, of) {
  let n = 0;
  for (let i = 0; i < SERIES.length; i++)
    if (of == null || of === i) n += row.ring[row.ring.length - SERIES.length + i];
  return n / (live.step_ms / 1000);
}
