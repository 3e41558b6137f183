// An application that evaluates flags with OpenFeature's SDK, and what it finds.
//
// It can be a process of its own, so that nothing but the application is in what it measures:
//
//   application.js URL   evaluates on each message { atOnce, times }: so many at once, so many times;
//                        and answers with what became of each evaluation
"use strict";
const { OpenFeature } = require("@openfeature/server-sdk");
const { OFREPProvider } = require("@openfeature/ofrep-provider");

const USERS = Array.from({ length: 20 }, (_, i) => ({
  targetingKey: `user-${i}`, tier: i % 3 ? "free" : "gold", email: `user-${i}@example.com`,
}));
const BOUND_MS = 50;

async function connect(url) {
  await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl: url }));
  return OpenFeature.getClient();
}

// One evaluation; `kind` is the value's, `value` what the code itself has if all else fails.
async function evaluate(client, flag, kind, value, context) {
  const began = performance.now();
  const got = await client[`get${kind}Details`](flag, value, context);
  return { ...got, kind, ms: performance.now() - began };
}

const errors = (results) => results.filter((r) => r.errorCode).map((r) => `${r.flagKey}: ${r.errorCode}: ${r.errorMessage}`);

// A row of figures.
function figures(results) {
  const ms = results.map((r) => r.ms).sort((a, b) => a - b);
  const at = (share) => Number(ms[Math.ceil(share * ms.length) - 1].toFixed(1));
  return {
    evaluations: ms.length, errors: errors(results).length,
    "median ms": at(0.5), "p99 ms": at(0.99), "most ms": at(1), [`over ${BOUND_MS}`]: ms.filter((m) => m > BOUND_MS).length,
  };
}

async function several(client, { atOnce, times }) {
  const all = [];
  for (let i = 0; i < times; i++) {
    const users = Array.from({ length: atOnce }, (_, k) => USERS[(i * atOnce + k) % USERS.length]);
    all.push(...await Promise.all(users.map((user) => evaluate(client, "new-checkout", "Boolean", false, user))));
  }
  return all;
}

module.exports = { BOUND_MS, USERS, connect, evaluate, errors, figures };

if (require.main === module) {
  const client = connect(process.argv[2]);
  client.then(() => process.send("ready"));
  process.on("disconnect", () => process.exit());
  process.on("message", async (told) => process.send(await several(await client, told)));
}
