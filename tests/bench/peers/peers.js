// Breakers of Node.js: nanoseconds of a call, less those of a bare await of the same.
// node peers.js ROUNDS; finds its modules by NODE_PATH.
"use strict";
const Opossum = require("opossum");
const cockatiel = require("cockatiel");

const rounds = Number(process.argv[2]);
const CALLS = 20000, FAILING = 2000, REFUSED = 5000;

const good = async () => 1;
const bad = async () => { throw new Error("no"); };
let turn = 0;
const tenth = () => (++turn % 10 === 0 ? bad() : good());

async function nsOf(call, n) {
  const start = process.hrtime.bigint();
  for (let i = 0; i < n; i++) {
    try { await call(); } catch { /* as a caller would */ }
  }
  return Number(process.hrtime.bigint() - start) / n;
}

const windowed = { rollingCountTimeout: 60000, rollingCountBuckets: 60, errorThresholdPercentage: 50,
  volumeThreshold: 10, timeout: false };

function opossum(f) { return new Opossum(f, windowed); }

function cockatielOf() {
  return cockatiel.circuitBreaker(cockatiel.handleAll, { halfOpenAfter: 3600000,
    breaker: new cockatiel.SamplingBreaker({ threshold: 0.5, duration: 60000, minimumRps: 0 }) });
}

function paths() {
  const o = opossum(good), failing = opossum(tenth), open = opossum(good);
  open.open();
  const c = cockatielOf(), cFailing = cockatielOf(), cOpen = cockatielOf();
  cOpen.isolate();
  return [
    ["bare await", good, CALLS],
    ["bare await, 10 % fail", tenth, FAILING],
    ["opossum 9.0.0: closed", () => o.fire(), CALLS],
    ["opossum 9.0.0: 10 % fail", () => failing.fire(), FAILING],
    ["opossum 9.0.0: refused", () => open.fire(), REFUSED],
    ["cockatiel 3.2.1: closed", () => c.execute(good), CALLS],
    ["cockatiel 3.2.1: 10 % fail", () => cFailing.execute(tenth), FAILING],
    ["cockatiel 3.2.1: refused", () => cOpen.execute(good), REFUSED],
  ];
}

(async () => {
  const found = new Map();
  for (const [, call, n] of paths()) await nsOf(call, n); // compiled by then
  for (let round = 0; round < rounds; round++) {
    for (const [name, call, n] of paths()) {
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(await nsOf(call, n));
    }
  }
  for (const [name, ns] of found) {
    const bare = found.get(name.endsWith("fail") ? "bare await, 10 % fail" : "bare await");
    const net = name.startsWith("bare") ? ns : ns.map((x, i) => x - bare[i]);
    console.log(name + "\t" + net.map((x) => x.toFixed(1)).join(" "));
  }
  process.exit(0);
})();
