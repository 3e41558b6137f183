// How long an application waits for a flag, in each sort of outage: the figures of docs/openfeature.md.
//
//   bound.js NEAP POLICY DIRECTORY [ROUNDS [TIMEOUT_MS]]
//
// Application, neap and provider are a process each, and the policy's timeout_ms is its own unless
// TIMEOUT_MS is given.  Each round begins with a closed breaker, so each has an outage's first
// failures in it.  What must hold here is that no evaluation is an error; how long they take is the
// machine's as well, so that is printed.  On a quiet one none is over 50 ms but the cold ones, the
// very first of an application, whose own those are: they take as long without neap.
"use strict";
const assert = require("node:assert/strict");
const { fork } = require("node:child_process");
const path = require("node:path");
const { errors, figures } = require("./application.js");
const { Neap } = require("./neap.js");

const [command, policy, directory, rounds = "5", timeout] = process.argv.slice(2);
const FLAGS = {
  "new-checkout": { state: "ENABLED", defaultVariant: "off", variants: { on: true, off: false } },
};
const PARAMS = `return { ofrep = {
  ${timeout ? `timeout_ms = ${timeout},` : ""}
  defaults = { ["new-checkout"] = false },
} }`;
const OUTAGES = ["500", "503", "429", "hang", "slow", "flap", "refused"];

// Another process of ours, asked one thing after the other.
class Other {
  constructor(file, ...args) {
    this.child = fork(path.join(__dirname, file), args);
    this.child.once("exit", (code) => this.fail(new Error(`${file} ended: ${code}`)));
    this.answer = this.next();
  }

  next() {
    return new Promise((resolve, reject) => {
      this.child.once("message", resolve);
      this.fail = reject;
    });
  }

  ask(message) {
    const answer = this.next();
    this.child.send(message);
    return answer;
  }

  stop() {
    this.child.removeAllListeners("exit");
    this.child.kill();
  }
}

async function main() {
  const rows = new Map();
  const add = (phase, results) => rows.set(phase, [...(rows.get(phase) ?? []), ...results]);

  const provider = new Other("provider.js", JSON.stringify(FLAGS));
  const { port } = await provider.answer;
  const upstream = `http://127.0.0.1:${port}`;
  const sidecar = new Neap({ command, policy, params: PARAMS, directory, upstream });
  await sidecar.start();
  const url = `http://${sidecar.at}`;

  const started = async (at) => {
    const application = new Other("application.js", at);
    await application.answer;
    return application;
  };
  const begins = (mode) => provider.ask(mode === "refused" ? { call: "stop" } : { mode, delay: 200 });
  const ends = async (mode) => {
    await provider.ask(mode === "refused" ? { call: "start" } : { mode: "ok" });
    await sidecar.reset();
  };
  // The first evaluations of applications that have just been started: all of the 20, or the 20
  // after a few alone.
  const cold = async (phase, at) => {
    for (const alone of [0, 5]) {
      const application = await started(at);
      await application.ask({ atOnce: 1, times: alone });
      add(`${phase}, cold, 20 at once${alone ? ` after ${alone} alone` : ""}`, await application.ask({ atOnce: 20, times: 1 }));
      application.stop();
    }
  };

  try {
    for (const [phase, at] of [["without neap", upstream], ["normal", url]]) {
      for (let i = 0; i < rounds; i++) await cold(phase, at);
      const application = await started(at);
      await application.ask({ atOnce: 20, times: 10 });
      add(`${phase}, one at a time`, await application.ask({ atOnce: 1, times: 20 * rounds }));
      add(`${phase}, 20 at once`, await application.ask({ atOnce: 20, times: 2 * rounds }));
      application.stop();
    }
    const application = await started(url);
    for (const mode of OUTAGES) {
      for (let i = 0; i < rounds; i++) {
        for (const atOnce of [1, 20]) {
          await application.ask({ atOnce: 20, times: 2 });
          await begins(mode);
          add(`${mode}, ${atOnce === 1 ? "one at a time" : "20 at once"}`, await application.ask({ atOnce, times: atOnce === 1 ? 8 : 2 }));
          await ends(mode);
        }
      }
    }
    for (let i = 0; i < rounds; i++) {
      await begins("hang");
      await cold("hang", url);
      await ends("hang");
    }
    application.stop();

    const table = [...rows].map(([phase, results]) => ({ phase, ...figures(results) }));
    console.table(table);
    for (const [phase, results] of rows) assert.deepEqual(errors(results), [], phase);
  } catch (error) {
    console.log(sidecar.log);
    throw error;
  } finally {
    await sidecar.stop();
    provider.stop();
  }
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
