// live.js: what neap says, asked for every two seconds, and what is known of it here.
//
//   asked() -> answer of /live -> apply() -> rows, policies -> seen(changes)
//
// Only rows that changed come; the rest goes on as it was, with a point of no calls for each step.

const POLL_MS = 2000,
  HIDDEN_MS = 10000,
  PATIENCE_MS = 8000,
  LONGEST_WAIT_MS = 15000;
const SERIES = ["ok", "slow", "failed", "refused"];
const base = new URL(
  location.pathname.endsWith("/") ? location.pathname : location.pathname + "/",
  location.href,
);

const live = {
  rows: new Map(),
  policies: new Map(),
  version: 0,
  step: 0,
  steps: 64,
  step_ms: 4000,
  instance: "",
  ahead_ms: 0, // neap's clock over ours
  heard_at: 0, // when it last answered, on ours
  is_lost: false,
  tries: 0,
  next_at: 0,
  token: kept("neap.token") || "",
};

function kept(name) {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return null;
  }
}
function keep(name, value) {
  try {
    sessionStorage.setItem(name, value);
  } catch {
    /* in memory, then */
  }
}

const now_ms = () => Date.now() + live.ahead_ms;
/** Of an address a browser takes these away. */
const is_nameless = row => row.key === "." || row.key === "..";
const path_of = row => encodeURIComponent(row.policy) + "/" + encodeURIComponent(row.key);

/** An answer's JSON; else an Error that says in a line what is wrong. */
async function ask(path, body) {
  const headers = { Accept: "application/json" };
  if (live.token) headers.Authorization = "Bearer " + live.token;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(new URL(path, base), {
    method: body ? "POST" : "GET",
    body: body && JSON.stringify(body),
    headers,
    cache: "no-store",
    credentials: "same-origin",
    redirect: "error",
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  const said = await answer.json().catch(() => null);
  if (answer.ok && said) return said;
  const error = new Error(
    (said && (said.detail || said.title)) || "the answer was " + answer.status,
  );
  error.status = answer.status;
  throw error;
}

// ---- What came ----------------------------------------------------------------------------------

/** Moves a row's ring on to `step`; what is not told are steps without calls. */
function advance(row, step, points) {
  const length = live.steps * SERIES.length;
  const by = Math.min((step - row.step) * SERIES.length, length);
  if (by > 0) {
    row.ring.copyWithin(0, by);
    row.ring.fill(0, length - by);
    row.step = step;
  }
  if (points) row.ring.set(points.slice(-length), length - Math.min(points.length, length));
  if (by > 0 || points) row.is_drawn = false;
}

function fresh_row(policy, key, step) {
  return {
    policy,
    key,
    id: JSON.stringify([policy, key]),
    step,
    ring: new Float64Array(live.steps * SERIES.length),
  };
}

function apply_row(fields, list, step) {
  const told = Object.fromEntries(fields.map((field, i) => [field, list[i]]));
  const id = JSON.stringify([told.policy, told.key]);
  const row = live.rows.get(id) || fresh_row(told.policy, told.key, step);
  const was = row.state && { state: row.state, mode: row.mode, moved_at: row.moved_at };
  const points = told.points;
  delete told.points;
  Object.assign(row, told);
  advance(row, step, points);
  live.rows.set(id, row);
  return { row, was, is_new: !was };
}

/** Takes an answer over. Answers with what changed. */
function apply(answer) {
  const is_other = answer.instance !== live.instance,
    is_whole = is_other || live.version === 0;
  const was_known = live.instance !== "" && is_other;
  if (is_other) live.rows.clear();
  live.step_ms = answer.step_ms;
  live.steps = answer.steps;
  live.policies = new Map(answer.policies.map(policy => [policy.name, policy]));
  const told = new Set(),
    changes = [];
  for (const list of answer.rows) {
    const change = apply_row(answer.fields, list, answer.step);
    told.add(change.row.id);
    changes.push(change);
  }
  for (const [id, row] of live.rows) {
    if (!told.has(id)) advance(row, answer.step, null);
    if (is_whole && !told.has(id)) live.rows.delete(id);
  }
  live.instance = answer.instance;
  live.step = answer.step;
  // Some are gone that were not told of: ask for all, the next time.
  live.version = live.rows.size === answer.count ? answer.version : 0;
  live.ahead_ms = answer.now - Date.now();
  live.is_other_page = answer.page !== document.documentElement.dataset.version;
  return { changes, is_restarted: was_known, is_first: is_whole && !was_known };
}

// ---- Asking, again and again --------------------------------------------------------------------

let timer = 0,
  asking = false;

function again(wait_ms) {
  clearTimeout(timer);
  live.next_at = Date.now() + wait_ms;
  timer = setTimeout(poll, wait_ms);
}

/** Longer from time to time, and not all pages at once. */
function wait_of(tries) {
  return Math.min(LONGEST_WAIT_MS, 1000 * 2 ** Math.min(tries - 1, 5)) * (0.75 + Math.random() / 2);
}

async function poll() {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  try {
    const answer = await ask(`live?of=${live.instance}&since=${live.version}&step=${live.step}`);
    const was_lost = live.is_lost;
    Object.assign(live, { is_lost: false, tries: 0, heard_at: Date.now() });
    shown(apply(answer), was_lost);
    again(document.hidden ? HIDDEN_MS : POLL_MS);
  } catch (error) {
    if (error.status === 401) {
      ask_token(live.token ? "That token is not the right one." : "");
    } else {
      live.is_lost = true;
      live.tries += 1;
      again(wait_of(live.tries));
      lost(error);
    }
  }
  asking = false;
}
