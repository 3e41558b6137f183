// The page behind a proxy that asks neap by its address; and pages that have no business there.
"use strict";
const assert = require("node:assert/strict");
const http = require("node:http");

/** Everything as it came, but for Host; seen: [Sec-Fetch-Site, status] of each POST. */
function proxy_to(origin, seen) {
  const { host, hostname, port } = new URL(origin);
  return http.createServer((request, answer) => {
    if (request.url === "/elsewhere") return answer.end("a page that is not neap's");
    const headers = { ...request.headers, host };
    request.pipe(http.request({ hostname, port, path: request.url, method: request.method, headers }, from => {
      if (request.method === "POST") seen.push([request.headers["sec-fetch-site"], from.statusCode]);
      answer.writeHead(from.statusCode, from.headers);
      from.pipe(answer);
    }));
  });
}

module.exports = async (browser, origin, path) => {
  const seen = [], proxy = proxy_to(origin, seen);
  await new Promise(done => proxy.listen(0, "127.0.0.1", done));
  const at = name => `http://${name}:${proxy.address().port}`;
  const post = async (from, to) => {
    const page = await browser.newPage();
    await page.goto(from);
    await page.evaluate(to => fetch(to, { method: "POST", mode: "no-cors", body: new URLSearchParams({ by: "ann" }) }).then(() => 0), to + path);
    await page.close();
    return seen.at(-1);
  };
  assert.deepEqual(await post(at("neap.localhost") + "/", at("neap.localhost")), ["same-origin", 200], "its own page");
  const [site, status] = await post(at("other.localhost") + "/elsewhere", at("neap.localhost"));
  assert.match(site, /^(same|cross)-site$/);
  assert.equal(status, 403, "another site's page");
  // A name that was rebound to the proxy, which answers to every name: as there is no TLS, the browser vouches for nothing.
  assert.deepEqual(await post(at("rebound.test") + "/", at("rebound.test")), [undefined, 403], "DNS rebinding");
  proxy.closeAllConnections();
  proxy.close();
};
