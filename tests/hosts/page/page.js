// The page in a browser, in front of a neap whose dependency goes down and comes back.
//
//   page.js NEAP UPSTREAM DIRECTORY PORTS...    PORTS: of the upstream, neap, its admin pages
//
// With SHOTS=DIRECTORY it leaves pictures there.
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const http = require("node:http");
const { spawn } = require("node:child_process");
const { launch, open, is_fit, until } = require("./browser.js");
const proxied = require("./proxied.js");

const [neap, upstream, directory, upstream_port, listen_port, admin_port] = process.argv.slice(2);
const origin = `http://127.0.0.1:${admin_port}`;
const HOSTILE = "<img src=x onerror=alert(1)>'\"&</script>";

fs.writeFileSync(directory + "/flags.lua", `return {
  name = "flags", max_keys = 1100,
  window = { kind = "time", length_ms = 10000 },
  trip = { failures = 3, failure_rate = 0.5, minimum_calls = 100 },
  open = { cooldown_ms = 1500, jitter = 0, backoff = 1 },
  half_open = { probes = 3, successes = 2, concurrent = 1, lease_ms = 5000 },
  key = function(call) return call.request and call.request.headers["x-tenant"] end,
  fallback = { fallback.default { status = 200, body = "off" } },
}`);

// ---- neap, and calls --------------------------------------------------------------------------------

const children = [];
function start(command, ...words) {
  const child = spawn(command, words, { stdio: ["ignore", fs.openSync(directory + "/log", "a"), fs.openSync(directory + "/log", "a")] });
  children.push(child);
  return child;
}

const start_neap = (...more) =>
  start(neap, "serve", "--listen", "127.0.0.1:" + listen_port, "--admin", "127.0.0.1:" + admin_port,
    "--upstream", "http://127.0.0.1:" + upstream_port, "--policy", directory + "/flags.lua", "--max-breakers", "2000", ...more);

const agent = new http.Agent({ keepAlive: true, maxSockets: 20 });
const call = (tenant = "shop") =>
  new Promise(done => {
    const headers = tenant ? { "X-Tenant": tenant } : {};
    http.get({ port: listen_port, host: "127.0.0.1", path: "/flags/a", agent, headers }, answer => answer.resume().on("end", done)).on("error", done);
  });
const fails = mode => fetch(`http://127.0.0.1:${upstream_port}/_fail?mode=${mode}`, { method: "POST" });
const answers = () => fetch(origin + "/healthz").then(answer => answer.ok, () => false);
const breaker = key => fetch(`${origin}/breakers/flags/${encodeURIComponent(key)}`).then(answer => answer.json());

// ---- The page ---------------------------------------------------------------------------------------

const tile = (page, key) => page.locator(".tile").filter({ has: page.getByRole("link", { name: "flags/" + key, exact: true }) });
const state = async (page, key) => (await tile(page, key).locator(".state span").first().textContent());
const is = (page, key, wanted) => until(`${key} is ${wanted}`, async () => (await state(page, key)) === wanted);
const shot = (page, name) => process.env.SHOTS && page.screenshot({ path: `${process.env.SHOTS}/${name}.png` });

async function outage(page) {
  await is(page, "shop", "Closed");
  await is_fit(page, "closed");
  await fails("500");
  await is(page, "shop", "Open");
  const text = await tile(page, "shop").textContent();
  assert.match(text, /3 failures in \d+ calls, limit 3/);
  await until("it counts down", async () => /probe in \d+ s/.test(await tile(page, "shop").textContent()));
  assert.match(await page.title(), /^1 open - neap$/);
  assert.match(await page.locator("#said").textContent(), /flags shop: Open: closed -> open: 3 failures/);
  assert.match(await page.getByRole("link", { name: "flags" }).first().textContent(), /shop/, "trouble first");
  await until("the calls are seen", async () => /^[1-9]/.test(await tile(page, "shop").locator("[data-is='calls/s']").textContent()));
  await until("refused ones are drawn", async () => /^M/.test(await tile(page, "shop").locator(".spark .refused").getAttribute("d")));
  await until("fallbacks answer", async () => /^[1-9]\d* %$/.test(await tile(page, "shop").locator("[data-is=fallbacks]").textContent()));
  await is_fit(page, "open");
  await shot(page, "outage");
}

async function detail(page) {
  await tile(page, "shop").getByRole("link").click();
  const dialog = page.getByRole("dialog");
  await until("transitions", async () => (await dialog.locator(".moves .open").count()) > 0);
  assert.ok((await dialog.locator(".states .is_open").count()) > 0 && (await dialog.locator(".states .is_closed").count()) > 0);
  assert.match(await dialog.textContent(), /minimum_calls = 100.*length_ms = 10000/s);
  assert.equal(new URL(page.url()).hash, "#/flags/shop");
  await is_fit(page, "detail");
  await shot(page, "detail");
  await page.keyboard.press("Escape");
  assert.equal(await dialog.count(), 0);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "flags/shop", "focus is where it was");
  await page.goBack();
  await until("back shows it again", () => dialog.count());
  await page.keyboard.press("Escape");
}

async function recovery(page) {
  await fails("ok");
  await is(page, "shop", "Closed");
  assert.match(await tile(page, "shop").textContent(), /2 probes succeeded, limit 2/);
  assert.equal(await page.title(), "neap");
}

/** A mode that nothing ends, set as neap mode does without --for. */
async function for_good(page) {
  const set = mode => fetch(`${origin}/breakers/flags/shop/mode`, { method: "POST", body: new URLSearchParams({ mode, by: "eve" }) });
  await set("forced_closed");
  assert.equal((await breaker("shop")).operator.left_ms, undefined);
  await until("its tile says so", async () => (await tile(page, "shop").locator(".soon").textContent()) === "itself closed, until changed");
  await until("its detail says so", async () => /by eve.*; until somebody changes it/.test(await page.getByRole("dialog").textContent()));
  await set("policy");
  await is(page, "shop", "Closed");
}

/** By keyboard alone: force it open, give it back, reset it. */
async function by_hand(page) {
  await tile(page, "shop").getByRole("link").focus();
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Force open…" }).focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Force open: flags" });
  assert.match(await dialog.textContent(), /No call is let through until \d\d:\d\d:\d\d\./);
  await page.keyboard.press("Enter"); // without a name nothing happens
  assert.equal((await breaker("shop")).mode, "auto");
  await page.keyboard.type(HOSTILE);
  await page.keyboard.press("Tab");
  await page.keyboard.type("it's a drill");
  assert.match(await dialog.locator("pre").textContent(), /^neap mode flags\/shop forced_open --for 10m --by '<img .* --reason 'it'\\''s a drill'$/);
  await is_fit(page, "confirmation");
  await shot(page, "confirmation");
  await page.keyboard.press("Enter");
  await is(page, "shop", "Forced open");
  const { mode, operator } = await breaker("shop");
  assert.deepEqual([mode, operator.by, operator.reason], ["forced_open", HOSTILE, "it's a drill"]);
  assert.ok(operator.left_ms > 500000);
  await until("the keyboard is where it was", () => page.evaluate(() => document.activeElement.closest(".deeds") !== null));
  await until("who did it is shown", async () => (await page.getByRole("dialog").textContent()).includes(HOSTILE));
  for (const [button, verb, wanted] of [["Give back to the policy…", "Give back", "Closed"], ["Trip…", "Trip", "Open"], ["Reset…", "Reset", "Closed"]]) {
    await page.getByRole("button", { name: button }).click();
    await page.getByLabel("Why").fill("over");
    await page.getByRole("button", { name: verb, exact: true }).click();
    await is(page, "shop", wanted);
  }
  assert.equal((await breaker("shop")).last_transition.reason, "reset");
  await for_good(page);
  await page.getByRole("button", { name: "Close", exact: true }).click();
  await page.evaluate(() => document.activeElement.blur());
}

async function hostile(page) {
  await call(HOSTILE);
  await until("the hostile name", () => tile(page, HOSTILE).count());
  assert.equal(await page.locator("img").count(), 0);
  await page.goto(`${origin}/#/flags/${encodeURIComponent(HOSTILE)}`);
  await until("its detail", async () => (await page.getByRole("dialog").textContent()).includes("Policy in force"));
  assert.ok((await page.getByRole("dialog").getByRole("heading").first().textContent()).includes(HOSTILE));
  await is_fit(page, "hostile");
  await page.keyboard.press("Escape");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "flags/" + HOSTILE, "focus is on what was shown");
  await page.evaluate(() => document.activeElement.blur());
  await page.goto(origin + "/#/flags/nobody");
  assert.match(await page.getByRole("dialog").textContent(), /There is no such breaker/);
  await page.keyboard.press("Escape");
}

async function filter(page) {
  await page.reload(); // at the beginning the keyboard is nowhere
  await until("tiles", () => page.locator(".tile").count());
  for (const [what, id] of [["to the breakers", "skip"], ["the filter", "search"]]) {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.id), id, what);
  }
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("/");
  await page.keyboard.type("shop");
  assert.equal(await page.getByRole("searchbox").inputValue(), "shop");
  await until("one is left", async () => (await page.locator(".tile").count()) === 1);
  await page.keyboard.press("Control+A");
  await page.keyboard.type("no such thing");
  await page.getByText("No breaker is like that.").waitFor();
  await page.getByRole("searchbox").fill("");
  await page.getByRole("button", { name: /closed/ }).click();
  assert.ok((await page.locator(".tile").count()) >= 2);
  await page.getByRole("button", { name: /half-open/ }).click();
  await page.getByRole("button", { name: /closed/ }).click();
  await until("none is half-open", async () => (await page.locator(".tile").count()) === 0);
  await page.getByRole("button", { name: /half-open/ }).click();
}

/** Tiles stay under the pointer. */
async function held(page) {
  const order = () => page.locator(".tile h3").allTextContents();
  const before = await order();
  await tile(page, before.at(-1).slice("flags/".length)).hover();
  await fetch(`${origin}/breakers/flags/${encodeURIComponent(before.at(-1).slice("flags/".length))}/mode`, { method: "POST", body: "mode=forced_open&by=test", headers: { "Content-Type": "application/x-www-form-urlencoded" } });
  await page.getByText("Tiles are held").waitFor();
  assert.deepEqual(await order(), before);
  await page.mouse.move(5, 5);
  await until("the order is new", async () => (await order())[0] === before.at(-1));
}

async function many(page) {
  for (let i = 0; i < 1000; i += 50) await Promise.all(Array.from({ length: 50 }, (_, n) => call("tenant-" + (i + n))));
  await until("a thousand tiles", async () => (await page.locator(".tile").count()) >= 1000);
  const took = await page.evaluate(() => new Promise(done => {
    const watch = new PerformanceObserver(list => list.getEntries().forEach(entry => long.push(Math.round(entry.duration))));
    const long = [];
    watch.observe({ type: "longtask" });
    setTimeout(() => done(long), 8000); // a second: see browser.js
  }));
  console.log(`1,000 breakers: tasks of more than 50 ms in an update: ${took.length ? took.join(", ") + " ms" : "none"}`);
  await page.getByRole("searchbox").fill("tenant-777");
  await until("the one that is sought", async () => (await page.locator(".tile").count()) === 1);
  await page.getByRole("searchbox").fill("");
  await shot(page, "thousand");
}

async function restart(page, child) {
  child.kill("SIGKILL");
  await page.getByText("neap does not answer.").waitFor();
  await page.getByText(/What you see is \d+ s old/).waitFor();
  assert.ok(await page.evaluate(() => document.body.classList.contains("is-old")));
  assert.ok((await page.locator(".tile").count()) > 0, "what is known stays");
  await shot(page, "lost");
  await page.evaluate(() => { document.documentElement.dataset.version = "of an earlier neap"; });
  start_neap();
  await until("neap again", answers);
  await page.getByText("another version of neap").waitFor();
  assert.equal(await page.evaluate(() => document.body.classList.contains("is-old")), false);
  await until("the old ones are gone", async () => (await page.locator(".tile").count()) < 5);
  await page.getByRole("button", { name: "Load its page" }).click();
  await until("its page", async () => (await page.locator("#banner").isHidden()) && (await page.locator(".tile").count()) > 0);
}

async function with_token(browser) {
  fs.writeFileSync(directory + "/token", "a-token-of-16-bytes-or-more\n", { mode: 0o600 });
  children.at(-1).kill("SIGKILL");
  await until("it is gone", async () => !(await answers()));
  start_neap("--admin-token-file", directory + "/token");
  await until("neap with a token", answers);
  const page = await open(browser, origin);
  await page.getByRole("textbox").fill("wrong");
  await page.keyboard.press("Enter");
  await page.getByText("That token is not the right one.").waitFor();
  await is_fit(page, "token");
  await page.getByRole("textbox").fill("a-token-of-16-bytes-or-more");
  await page.keyboard.press("Enter");
  await until("tiles", () => page.locator(".tile").count());
  await page.reload();
  await until("tiles, the token being kept", () => page.locator(".tile").count());
  assert.deepEqual(await page.wrong(), []);
}

async function elsewhere(browser) {
  for (const [name, options] of [["dark", { colorScheme: "dark" }], ["phone", { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true, reducedMotion: "reduce" }]]) {
    const page = await open(browser, origin, options);
    await until("tiles", () => page.locator(".tile").count());
    await is_fit(page, name);
    await shot(page, name);
    await page.locator(".tile a").first().click();
    await until("all of it", async () => (await page.getByRole("dialog").textContent()).includes("Policy in force"));
    await is_fit(page, name + ", detail");
    await shot(page, name + "-detail");
    await page.context().close();
  }
}

(async () => {
  start("lua5.4", upstream, "--listen", "127.0.0.1:" + upstream_port, "--quiet");
  const child = start_neap();
  const [browser] = await Promise.all([launch(), until("neap", answers)]);
  const traffic = setInterval(call, 40);
  const page = await open(browser, origin);
  for (const part of [outage, detail, recovery, by_hand, hostile, filter, held]) await part(page);
  await elsewhere(browser);
  await proxied(browser, origin, "/breakers/flags/shop/reset");
  await many(page);
  await restart(page, child);
  assert.deepEqual(await page.wrong(), []);
  clearInterval(traffic);
  await with_token(browser);
  await browser.close();
})().then(() => 0, error => {
  console.error(error);
  return 1;
}).then(status => {
  for (const child of children) child.kill("SIGKILL");
  process.exit(status);
});
