// neap in front of a provider: its process and its admin pages; and waiting for what comes.
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { spawn } = require("node:child_process");

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(what, holds, ms = 20000) {
  const end = Date.now() + ms;
  while (!(await holds())) {
    assert.ok(Date.now() < end, `not in time: ${typeof what === "function" ? what() : what}`);
    await sleep(20);
  }
}

class Neap {
  // params: the text of the file with the policy's; directory: what is kept, over restarts, too.
  constructor({ command, policy, params, directory, upstream }) {
    Object.assign(this, { command, policy, params, directory, upstream });
  }

  async start() {
    this.log = "";
    const params = path.join(this.directory, "params.lua");
    fs.writeFileSync(params, this.params);
    this.child = spawn(this.command, [
      "serve", "--upstream", this.upstream, "--policy", this.policy, "--params", params,
      "--listen", `127.0.0.1:${this.port ?? 0}`, "--admin", "127.0.0.1:0", "--log-format", "json",
      "--state-dir", this.directory,
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

module.exports = { Neap, sleep, until };
