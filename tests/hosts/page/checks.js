// What can be computed of a page: names, contrast, what sticks out.  Each runs in the browser and
// answers with a list of what is wrong.
"use strict";

/** Everything that can be used has a name. */
exports.unnamed = () => {
  const name = element =>
    element.getAttribute("aria-label") ||
    (element.labels && [...element.labels].map(label => label.textContent).join(" ")) ||
    element.textContent.trim();
  return [...document.querySelectorAll("a, button, input, select, dialog")]
    .filter(element => element.checkVisibility())
    .filter(element => !(name(element) || element.getAttribute("aria-labelledby")))
    .map(element => element.outerHTML.slice(0, 100));
};

/** Links to breakers are read out with their states. */
exports.stateless = () =>
  [...document.querySelectorAll(".tile a")]
    .filter(link => !document.getElementById(link.getAttribute("aria-describedby"))?.textContent)
    .map(link => link.textContent);

/** Text against what is behind it: 4.5 to 1, or 3 to 1 if it is large. */
exports.faint = () => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgba(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba("white");
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(c => {
      const n = c / 255;
      return n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((m, n) => n - m);
    return (x + 0.05) / (y + 0.05);
  };
  const wrong = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const is_text = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!is_text || !element.checkVisibility() || /^(SCRIPT|STYLE|OPTION)$/.test(element.tagName)) continue;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const is_large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const found = contrast(rgba(style.color), behind(element));
    if (found < (is_large ? 3 : 4.5)) {
      wrong.add(`${element.tagName}.${element.className} "${element.textContent.slice(0, 30)}": ${found.toFixed(2)}`);
    }
  }
  return [...wrong];
};

/** What is wider than the screen, or too small for a finger. */
exports.unfit = () => {
  const wrong = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push(`wider than ${width}`);
  for (const element of document.querySelectorAll("button, input, select, .tile, dialog[open] *")) {
    if (!element.checkVisibility()) continue;
    const box = element.getBoundingClientRect();
    if (box.right > width + 1 && getComputedStyle(element).clipPath === "none") wrong.push(`${element.tagName} sticks out`);
    if (/^(BUTTON|INPUT|SELECT)$/.test(element.tagName) && box.height < 24) wrong.push(`${element.textContent}: ${box.height} high`);
  }
  return wrong;
};

/** One h1, and no level left out. */
exports.headings = () => {
  const levels = [...document.querySelectorAll("h1, h2, h3")]
    .filter(heading => !heading.closest("dialog"))
    .map(heading => Number(heading.tagName[1]));
  const is_right = levels[0] === 1 && levels.every((n, i) => i === 0 || (n > 1 && n <= levels[i - 1] + 1));
  return is_right ? [] : [levels.join()];
};
