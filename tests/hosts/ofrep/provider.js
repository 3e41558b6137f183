// A flag provider that speaks OFREP, with flagd's own evaluation, and can be made to fail:
//
//   ok            evaluates
//   hang          takes the request and never answers
//   slow          answers after `delay` ms
//   flap          every other request is a 500
//   STATUS        answers so, e.g. "500", "401", "429" (with Retry-After)
//
// It can be a process of its own, which tells its port, and is told what to do by messages:
//
//   provider.js FLAGS    { mode, delay, … }, or { call: "stop" } and { call: "start" }
"use strict";
const crypto = require("node:crypto");
const http = require("node:http");
const { FlagdCore } = require("@openfeature/flagd-core");

const quiet = { error() {}, warn() {}, info() {}, debug() {} };
const ONE = /^\/ofrep\/v1\/evaluate\/flags\/([^/?]+)$/;
const ALL = "/ofrep/v1/evaluate/flags";
const STATUS_OF = { FLAG_NOT_FOUND: 404 };

class Provider {
  constructor(flags) {
    this.core = new FlagdCore(undefined, quiet);
    this.mode = "ok";
    this.delay = 0;
    this.retryAfter = 1;
    this.requests = 0; // that came as far as here
    this.sockets = new Set();
    this.configure(flags);
  }

  configure(flags) {
    this.core.setConfigurations(JSON.stringify({ flags }));
  }

  // The flag's value for that context, as flagd has it.
  evaluate(key, context) {
    const flag = this.core.getFlag(key);
    const first = flag && [...flag.variants.values()][0];
    return this.core.resolve(first === undefined ? "boolean" : typeof first, key, first ?? false, context, quiet);
  }

  one(key, context, send) {
    const wrong = context?.wrong; // the application's own mistake, as the provider finds it
    const said = wrong ? { errorCode: wrong, errorMessage: "the test asked for it" } : this.evaluate(key, context);
    if (said.errorCode) {
      send(STATUS_OF[said.errorCode] ?? 400, { key, errorCode: said.errorCode, errorDetails: said.errorMessage });
    } else {
      send(200, { key, value: said.value, variant: said.variant, reason: said.reason, metadata: {} });
    }
  }

  all(context, ifNoneMatch, send) {
    const flags = this.core.resolveAll(context, quiet).map((f) => ({
      key: f.flagKey, value: f.value, variant: f.variant, reason: f.reason, metadata: {},
    }));
    const etag = `"${crypto.createHash("sha256").update(JSON.stringify(flags)).digest("hex").slice(0, 16)}"`;
    if (ifNoneMatch === etag) send(304, null, { ETag: etag });
    else send(200, { flags }, { ETag: etag });
  }

  handle(request, body, response) {
    const send = (status, value, headers = {}) => {
      const text = value === null ? "" : JSON.stringify(value);
      response.writeHead(status, { "Content-Type": "application/json", ...headers });
      response.end(text);
    };
    const turn = ++this.requests;
    if (this.mode === "hang") return;
    if (/^\d+$/.test(this.mode) || (this.mode === "flap" && turn % 2)) {
      const status = Number(this.mode === "flap" ? 500 : this.mode);
      const headers = status === 429 ? { "Retry-After": String(this.retryAfter) } : {};
      send(status, { errorCode: "GENERAL", errorDetails: "told to fail" }, headers);
      return;
    }
    let context;
    try {
      context = JSON.parse(body || "{}").context ?? {};
    } catch (error) {
      send(400, { key: "", errorCode: "PARSE_ERROR", errorDetails: String(error) });
      return;
    }
    const answer = () => {
      const key = ONE.exec(request.url)?.[1];
      if (key) this.one(decodeURIComponent(key), context, send);
      else if (request.url === ALL) this.all(context, request.headers["if-none-match"], send);
      else send(404, {});
    };
    if (this.mode === "slow") setTimeout(answer, this.delay);
    else answer();
  }

  // Listens, on the same port as before.
  start(port = this.port ?? 0) {
    this.server = http.createServer((request, response) => {
      const parts = [];
      request.on("data", (part) => parts.push(part));
      request.on("end", () => this.handle(request, Buffer.concat(parts).toString(), response));
    });
    this.server.on("connection", (socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(port, "127.0.0.1", () => {
        this.port = this.server.address().port;
        resolve(this);
      });
    });
  }

  // Dies: connections are reset, new ones refused.
  stop() {
    for (const socket of this.sockets) socket.destroy();
    return new Promise((resolve) => this.server.close(resolve));
  }
}

module.exports = { Provider };

if (require.main === module) {
  const provider = new Provider(JSON.parse(process.argv[2]));
  const answer = () => process.send({ port: provider.port });
  process.on("message", async ({ call, ...told }) => {
    Object.assign(provider, told);
    if (call) await provider[call]();
    answer();
  });
  process.on("disconnect", () => process.exit());
  provider.start().then(answer);
}
