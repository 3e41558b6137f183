// A real OpenFeature application asks a real provider through neap: normal operation, every sort of
// outage, and recovery.  What must hold: the application gets a value, and within its time.
//
//   outage.js NEAP POLICY DIRECTORY [TIMEOUT_MS]
//
// TIMEOUT_MS is the policy's.  Without it, it is long enough for a machine that does much else
// besides: nothing here depends on how fast it is.  With 40, the policy's own, on a quiet machine,
// the table that is printed shows that each evaluation is over within 50 ms.
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { spawn } = require("node:child_process");
const { OpenFeature } = require("@openfeature/server-sdk");
const { OFREPProvider } = require("@openfeature/ofrep-provider");
const { OFREPApi } = require("@openfeature/ofrep-core");
const { Provider } = require("./provider.js");

const [neap, policy, directory, timeout = "600"] = process.argv.slice(2);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ---- The flags ----------------------------------------------------------------------------------

const USERS = Array.from({ length: 20 }, (_, i) => ({
  targetingKey: `user-${i}`, tier: i % 3 ? "free" : "gold", email: `user-${i}@example.com`,
}));

const onFor = (tier) => ({ if: [{ "===": [{ var: "tier" }, tier] }, "on", "off"] });
const flags = (version) => ({
  "new-checkout": { state: "ENABLED", defaultVariant: "off", variants: { on: true, off: false }, targeting: onFor("gold") },
  "banner-text": { state: "ENABLED", defaultVariant: "v", variants: { v: `hello ${version}` } },
  "page-size": { state: "ENABLED", defaultVariant: "n", variants: { n: 25 } },
  "theme": { state: "ENABLED", defaultVariant: "t", variants: { t: { color: "teal", version } } },
  "payments-kill-switch": { state: "ENABLED", defaultVariant: "on", variants: { on: true, off: false } },
});
const KINDS = { "new-checkout": "Boolean", "banner-text": "String", "page-size": "Number", theme: "Object" };
const CODE_DEFAULT = { Boolean: false, String: "code", Number: -1, Object: { code: true } };

// What was reviewed, on the side of neap.
const PARAMS = `return { ofrep = {
  timeout_ms = ${timeout},
  defaults = { ["new-checkout"] = false, ["banner-text"] = "hello", ["page-size"] = 10,
               ["theme"] = { color = "grey" }, ["payments-kill-switch"] = false },
  never_stale = { ["payments-kill-switch"] = true },
  flags = { "new-checkout", "banner-text", "page-size", "theme", "payments-kill-switch" },
} }`;

// ---- neap ---------------------------------------------------------------------------------------

class Neap {
  constructor(upstream) {
    this.upstream = upstream;
  }

  async start() {
    this.log = "";
    const params = path.join(directory, "params.lua");
    fs.writeFileSync(params, PARAMS);
    this.child = spawn(neap, [
      "serve", "--upstream", this.upstream, "--policy", policy, "--params", params,
      "--listen", `127.0.0.1:${this.port ?? 0}`, "--admin", "127.0.0.1:0", "--log-format", "json",
      "--state-dir", directory,
    ]);
    this.child.stderr.on("data", (data) => { this.log += data; });
    this.ended = new Promise((resolve) => this.child.once("exit", resolve));
    await until(() => `neap listens: ${this.log}`, () => {
      this.at = this.log.match(/serving on http:\/\/([^"]+)/)?.[1];
      this.admin = this.log.match(/admin on http:\/\/([^"]+)/)?.[1];
      assert.equal(this.child.exitCode, null, `neap ended: ${this.log}`);
      return this.at && this.admin;
    });
    this.port ??= Number(this.at.split(":")[1]);
  }

  async stop() {
    this.child.kill("SIGTERM");
    return this.ended;
  }

  async operate(page, fields) {
    const done = await fetch(`http://${this.admin}${page}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ by: "test", ...fields }),
    });
    assert.equal(done.status, 200, await done.text());
  }

  reset() {
    return this.operate("/breakers/ofrep/default/reset");
  }

  // The value of a series, e.g. neap_breaker_state.
  async metric(name, labels = "") {
    const text = await (await fetch(`http://${this.admin}/metrics`)).text();
    const line = text.split("\n").find((l) => l.startsWith(`${name}{`) && l.includes(labels));
    assert.ok(line, `no series ${name} ${labels}`);
    return Number(line.split(" ").pop());
  }

  state() {
    return this.metric("neap_breaker_state", 'key="default"');
  }
}

async function until(what, holds, ms = 20000) {
  const end = Date.now() + ms;
  while (!(await holds())) {
    assert.ok(Date.now() < end, `not in time: ${typeof what === "function" ? what() : what}`);
    await sleep(20);
  }
}

// ---- The application ----------------------------------------------------------------------------

// One evaluation, as an application does it.
async function evaluate(client, flag, context, kind = KINDS[flag] ?? "Boolean") {
  const began = performance.now();
  const got = await client[`get${kind}Details`](flag, CODE_DEFAULT[kind], context);
  return { ...got, kind, ms: performance.now() - began };
}

// All flags for all users, some at a time.
async function round(client, names = Object.keys(KINDS), users = USERS) {
  const all = [];
  for (const flag of names) {
    all.push(...await Promise.all(users.map(async (user) => ({ flag, user, ...await evaluate(client, flag, user) }))));
  }
  return all;
}

const errors = (results) => results.filter((r) => r.errorCode).map((r) => `${r.flag}: ${r.errorCode}: ${r.errorMessage}`);

const table = [];
function tell(phase, results) {
  const ms = results.map((r) => r.ms).sort((a, b) => a - b);
  const reasons = {};
  for (const r of results) reasons[r.reason] = (reasons[r.reason] ?? 0) + 1;
  table.push({
    phase, evaluations: results.length, errors: errors(results).length,
    "median ms": ms[ms.length >> 1].toFixed(1), "most ms": ms[ms.length - 1].toFixed(1), reasons: JSON.stringify(reasons),
  });
}

module.exports = { Neap, Provider, OFREPApi, OFREPProvider, OpenFeature, USERS, KINDS, CODE_DEFAULT, flags, evaluate, round,
  errors, tell, table, until, sleep, assert };

// ---- The story ----------------------------------------------------------------------------------

async function story() {
  const provider = await new Provider(flags(1)).start();
  const sidecar = new Neap(`http://127.0.0.1:${provider.port}`);
  await sidecar.start();
  await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl: `http://${sidecar.at}` }));
  const client = OpenFeature.getClient();
  const ask = async (phase, expected) => {
    const results = await round(client);
    tell(phase, results);
    assert.deepEqual(errors(results), [], phase);
    for (const r of results) assert.deepEqual(r.value, expected(r), `${phase}: ${r.flag} for ${r.user.targetingKey}`);
    return results;
  };
  const live = (r) => provider.evaluate(r.flag, r.user).value;

  try {
    // All is well: what flagd says, for each user his own.
    const before = await ask("normal", live);
    assert.ok(before.every((r) => r.reason !== "DEFAULT" || r.variant !== "neap-default"));
    const kept = new Map(before.map((r) => [`${r.flag} ${r.user.targetingKey}`, r.value]));
    const asBefore = (r) => kept.get(`${r.flag} ${r.user.targetingKey}`);
    assert.equal(new Set(before.filter((r) => r.flag === "new-checkout").map((r) => r.value)).size, 2);

    // The application's own mistakes reach it unchanged, and are no outage.
    for (let i = 0; i < 40; i++) {
      assert.equal((await evaluate(client, "no-such-flag", USERS[0])).errorCode, "FLAG_NOT_FOUND");
      for (const code of ["PARSE_ERROR", "INVALID_CONTEXT", "TARGETING_KEY_MISSING"]) {
        assert.equal((await evaluate(client, "new-checkout", { ...USERS[0], wrong: code })).errorCode, code);
      }
    }
    assert.equal(await sidecar.state(), 0, "mistakes of the application opened the breaker");
    assert.equal(await sidecar.metric("neap_calls_total", 'outcome="neutral"'), 160);
    assert.match(sidecar.log, /neutral: the breaker sees little/); // B086

    // Wrong credentials: no outage either, but nothing to keep quiet about.
    for (const mode of ["401", "403"]) {
      provider.mode = mode;
      for (let i = 0; i < 10; i++) assert.ok((await evaluate(client, "new-checkout", USERS[0])).errorCode);
      assert.equal(await sidecar.state(), 0, `${mode} opened the breaker`);
    }
    await until("the log tells of the credentials", () => /refuses our credentials/.test(sidecar.log));
    provider.mode = "ok";

    // Outages of every sort.
    const recovered = async (phase) => {
      provider.mode = "ok";
      await until(`${phase}: it closes again`, async () => {
        await evaluate(client, "page-size", USERS[0]);
        return await sidecar.state() === 0;
      });
      await sidecar.reset(); // or each outage would be one more flap, and the next wait twice as long
    };
    for (const mode of ["500", "503", "hang", "slow", "flap"]) {
      provider.mode = mode;
      provider.delay = 5 * timeout;
      await ask(mode, asBefore);
      if (mode !== "flap") {
        await ask(`${mode}, open`, asBefore);
        assert.equal(await sidecar.state(), 2, `${mode}: it is not open`);
      }
      // Never asked before: the reviewed default, which says so.  A kill switch: never an old value.
      if (await sidecar.state() === 2) {
        const unseen = await evaluate(client, "banner-text", { targetingKey: `unseen in ${mode}` });
        assert.deepEqual([unseen.value, unseen.reason, unseen.errorCode], ["hello", "DEFAULT", undefined]);
        const kill = await evaluate(client, "payments-kill-switch", USERS[0]);
        assert.deepEqual([kill.value, kill.reason], [false, "DEFAULT"]);
        // Nobody has reviewed this one: the application's own default, and it is told why.
        const unknown = await evaluate(client, "no-such-flag", USERS[0]);
        assert.deepEqual([unknown.value, Boolean(unknown.errorCode)], [false, true]);
      }
      await recovered(mode);
    }

    // Too many requests: the SDK would pause altogether if it saw the 429.
    provider.mode = "429";
    provider.retryAfter = 3;
    await ask("429", asBefore);
    const asked = provider.requests;
    await ask("429, open", asBefore);
    assert.equal(provider.requests, asked, "asked again before Retry-After");
    await recovered("429");

    // It is gone, and while it is, so is neap for a moment.
    await provider.stop();
    await ask("refused", asBefore);
    await ask("refused, open", asBefore);
    assert.equal(await sidecar.state(), 2);
    assert.equal(await sidecar.stop(), 0, sidecar.log);
    await sidecar.start();
    await ask("neap restarted", asBefore);

    // It comes back with another configuration.
    provider.configure(flags(2));
    await provider.start();
    await recovered("restart");
    const after = await ask("restarted", live);
    assert.ok(after.some((r) => r.value === "hello 2"));

    await bulk(provider, sidecar, recovered);
  } catch (error) {
    console.log(sidecar.log);
    throw error;
  } finally {
    console.table(table);
    await OpenFeature.close();
    await sidecar.stop();
    await provider.stop();
  }
}

// All flags at once, as clients in browsers ask, which know what they have by its ETag.
async function bulk(provider, sidecar, recovered) {
  const api = new OFREPApi(`http://${sidecar.at}`);
  const request = { context: USERS[0] };
  const first = await api.postBulkEvaluateFlags(request);
  assert.equal(first.value.flags.length, 5);
  const etag = first.httpResponse.headers.get("ETag");
  const again = await api.postBulkEvaluateFlags(request, { headers: [["If-None-Match", etag]] });
  assert.equal(again.httpStatus, 304);
  // One of them must never be stale, so all that is answered in an outage are the defaults.
  provider.mode = "500";
  for (let i = 0; i < 7; i++) {
    const { httpStatus, value } = await api.postBulkEvaluateFlags(request);
    assert.equal(httpStatus, 200);
    assert.deepEqual(value.flags.map((f) => f.reason), Array(5).fill("DEFAULT"));
  }
  assert.equal(await sidecar.state(), 2);
  await recovered("bulk");

  // Without such flags: the last good answer to the same question.
  await sidecar.operate("/policies/ofrep/params", { never_stale: { "payments-kill-switch": false } });
  await api.postBulkEvaluateFlags(request);
  provider.mode = "hang";
  for (let i = 0; i < 7; i++) {
    const { httpStatus, value } = await api.postBulkEvaluateFlags(request, { headers: [["If-None-Match", etag]] });
    assert.equal(httpStatus, 200);
    assert.deepEqual(value.flags, first.value.flags);
  }
  const unseen = await api.postBulkEvaluateFlags({ context: { targetingKey: "unseen" } });
  assert.deepEqual(unseen.value.flags.map((f) => f.reason), Array(5).fill("DEFAULT"));
  await recovered("bulk, kept");
}

story().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
