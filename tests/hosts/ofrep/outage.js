// A real OpenFeature application asks a real provider through neap: normal operation, every sort of
// outage, and recovery.  What must hold: the application gets a value, and within its time.
//
//   outage.js NEAP POLICY DIRECTORY [TIMEOUT_MS]
//
// TIMEOUT_MS is the policy's.  Without it, it is long enough for a machine that does much else
// besides: nothing here depends on how fast it is.  How long an evaluation takes is for bound.js to
// say: here application and provider are one process, and wait for each other.
"use strict";
const assert = require("node:assert/strict");
const { OpenFeature } = require("@openfeature/server-sdk");
const { OFREPApi } = require("@openfeature/ofrep-core");
const { USERS, connect, errors, figures, ...application } = require("./application.js");
const { Neap, until } = require("./neap.js");
const { Provider } = require("./provider.js");

const [command, policy, directory, timeout = "600"] = process.argv.slice(2);

// ---- The flags ----------------------------------------------------------------------------------

const onFor = (tier) => ({ if: [{ "===": [{ var: "tier" }, tier] }, "on", "off"] });
const flags = (version) => ({
  "new-checkout": { state: "ENABLED", defaultVariant: "off", variants: { on: true, off: false }, targeting: onFor("gold") },
  "team: banner": { state: "ENABLED", defaultVariant: "v", variants: { v: `hello ${version}` } },
  "page-size": { state: "ENABLED", defaultVariant: "n", variants: { n: 25 } },
  "theme": { state: "ENABLED", defaultVariant: "t", variants: { t: { color: "teal", version } } },
  "payments-kill-switch": { state: "ENABLED", defaultVariant: "on", variants: { on: true, off: false } },
});
const KINDS = { "new-checkout": "Boolean", "team: banner": "String", "page-size": "Number", theme: "Object" };
const CODE_DEFAULT = { Boolean: false, String: "code", Number: -1, Object: { code: true } };

// What was reviewed, on the side of neap.
const PARAMS = `return { ofrep = {
  timeout_ms = ${timeout},
  defaults = { ["new-checkout"] = false, ["team: banner"] = "hello", ["page-size"] = 10,
               ["theme"] = { color = "grey" }, ["payments-kill-switch"] = false },
  never_stale = { ["payments-kill-switch"] = true },
  flags = { "new-checkout", "team: banner", "page-size", "theme", "payments-kill-switch" },
} }`;

// ---- The application ----------------------------------------------------------------------------

const evaluate = (client, flag, user, kind = KINDS[flag] ?? "Boolean") =>
  application.evaluate(client, flag, kind, CODE_DEFAULT[kind], user);

// All flags for all users, some at a time.
async function round(client, names = Object.keys(KINDS), users = USERS) {
  const all = [];
  for (const flag of names) {
    all.push(...await Promise.all(users.map(async (user) => ({ flag, user, ...await evaluate(client, flag, user) }))));
  }
  return all;
}

const table = [];
function tell(phase, results) {
  const reasons = {};
  for (const r of results) reasons[r.reason] = (reasons[r.reason] ?? 0) + 1;
  table.push({ phase, ...figures(results), reasons: JSON.stringify(reasons) });
}

// ---- The story ----------------------------------------------------------------------------------

async function story() {
  const provider = await new Provider(flags(1)).start();
  const upstream = `http://127.0.0.1:${provider.port}`;
  const sidecar = new Neap({ command, policy, params: PARAMS, directory, upstream });
  await sidecar.start();
  const client = await connect(`http://${sidecar.at}`);
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

    // Outages of every sort.  It takes two seconds to find out that one is over: not after each.
    const isQuick = new Set(["503", "slow", "flap", "bulk", "bulk, kept"]);
    const recovered = async (phase) => {
      provider.mode = "ok";
      if (isQuick.has(phase)) return sidecar.reset();
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
        const unseen = await evaluate(client, "team: banner", { targetingKey: `unseen in ${mode}` });
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
