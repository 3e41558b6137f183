// Chromium, and everything that a page must never do in it.
"use strict";
const assert = require("node:assert/strict");
const { chromium } = require("playwright-core");
const checks = require("./checks.js");

/** A browser; as root Chromium has no sandbox. What is rebound.test is this machine. */
exports.launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: ["--host-resolver-rules=MAP rebound.test 127.0.0.1", ...(process.getuid() === 0 ? ["--no-sandbox"] : [])],
  });

const HASTE = 8; // the page waits so many times shorter: what it does is tested, not that it waits

/** A page of `origin`; wrong() answers with what it did and must not have. */
exports.open = async (browser, origin, options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage(), wrong = [];
  await page.addInitScript(haste => {
    const timeout = window.setTimeout;
    window.setTimeout = (f, ms) => timeout(f, ms / haste);
    window.violations = [];
    addEventListener("securitypolicyviolation", event => violations.push(event.violatedDirective + " " + event.blockedURI));
  }, HASTE);
  page.on("pageerror", error => wrong.push("raised: " + error.stack));
  page.on("dialog", dialog => wrong.push("asked: " + dialog.message()));
  page.on("request", request => {
    if (!request.url().startsWith(origin + "/") && !request.url().startsWith("data:")) wrong.push("asked for " + request.url());
  });
  page.on("console", message => {
    // What the browser says of a neap that does not answer, or wants a token, is right.
    if (message.type() === "error" && !/ERR_CONNECTION_|ERR_EMPTY_|ERR_INCOMPLETE_|status of 40[01]/.test(message.text())) wrong.push(message.text());
  });
  page.wrong = async () => [...wrong, ...(await page.evaluate(() => window.violations))];
  await page.goto(options.address || origin + "/");
  return page;
};

exports.is_fit = async (page, what) => {
  for (const [name, check] of Object.entries(checks)) {
    assert.deepEqual(await page.evaluate(check), [], `${what}: ${name}`);
  }
  assert.deepEqual(await page.wrong(), [], what);
};

/** Waits until f's answer is truthy. */
exports.until = async (what, f, seconds = 15) => {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await f();
    if (found) return found;
    assert.ok(Date.now() < end, "not in time: " + what);
    await new Promise(done => setTimeout(done, 50));
  }
};
