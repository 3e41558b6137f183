// tiles.js: a tile for each breaker, those in trouble first.
//
// Tiles stay where they are while somebody points at them or is among them with the keyboard: the
// new order waits until then.

const STATES = { open: "Open", half_open: "Half-open", closed: "Closed" };
const tiles = new Map(); // by id
let made = 0;

// ---- What a row means ---------------------------------------------------------------------------

/** How it looks, and what its state is called. */
function look_of(row) {
  if (row.mode === "forced_open") return { look: "open", text: "Forced open" };
  if (row.mode === "forced_closed") return { look: "hand", text: "Forced closed" };
  const is_shadow = row.mode === "shadow";
  const look = row.state === "open" ? "open" : row.state === "half_open" ? "half" : "well";
  if (is_shadow)
    return { look: look === "well" ? "well" : "hand", text: `${STATES[row.state]}, shadow` };
  return { look, text: row.state === "closed" && row.admitted < 1 ? "Closing" : STATES[row.state] };
}

/** What comes next, in a few words; "" if nothing does. */
function soon_of(row) {
  if (row.mode !== "auto") {
    if (row.mode_until) return `ends in ${until(row.mode_until)}`;
    const itself = row.mode === "forced_closed" ? [`itself ${STATES[row.state].toLowerCase()}`] : [];
    return [...itself, ...(row.set ? ["until changed"] : [])].join(", ");
  }
  if (row.state === "open")
    return row.probe_at > now_ms() ? `probe in ${until(row.probe_at)}` : "probe with the next call";
  if (row.state === "half_open") {
    const policy = live.policies.get(row.policy),
      of = policy ? policy.limits.successes : 0;
    return row.probes_in_flight
      ? `${counted(row.probes_in_flight, "probe")} under way`
      : `${row.probes_succeeded} of ${of} probes well`;
  }
  return row.admitted < 1 ? `lets ${percent(row.admitted)} in` : "";
}

/** The policy's rules, each with what is measured, its limit, and how near that is (1: reached). */
function rules_of(row) {
  const policy = live.policies.get(row.policy),
    rules = [];
  if (!policy) return rules;
  const { failures, failure_rate, slow_rate, consecutive_failures, minimum_calls } = policy.limits;
  const by_rate = (part, limit, noun) => {
    const share = row.calls ? part / row.calls : 0,
      is_enough = row.calls >= (minimum_calls || 1);
    const limited = `limit ${percent(limit)}`;
    rules.push({
      text: row.calls ? `${percent(share)} ${noun}` : "no calls",
      limit: is_enough
        ? `of ${counted(row.calls, "call")}, ${limited}`
        : `${limited} at ≥ ${minimum_calls} calls`,
      near: is_enough ? share / limit : 0,
    });
  };
  if (failure_rate) by_rate(row.failures, failure_rate, "failed");
  if (slow_rate) by_rate(row.slow, slow_rate, "slow");
  if (failures)
    rules.push({
      text: counted(row.failures, "failure"),
      limit: `of ${counted(row.calls, "call")}, limit ${number(failures)}`,
      near: row.failures / failures,
    });
  if (consecutive_failures)
    rules.push({
      text: `${number(row.in_a_row)} failed in a row`,
      limit: `limit ${number(consecutive_failures)}`,
      near: row.in_a_row / consecutive_failures,
    });
  if (policy.trips)
    rules.push({ text: "a function of the policy", limit: "decides, too", near: 0 });
  return rules;
}

/** Of a round of probes: how far it is. */
function round_of(row) {
  const policy = live.policies.get(row.policy);
  if (row.state !== "half_open" || !policy) return null;
  const { probes, successes } = policy.limits;
  return {
    text: `${row.probes_succeeded} of ${successes} probes succeeded`,
    limit: `${row.probes_failed} failed, ${probes} at most`,
    near: row.probes_succeeded / successes,
    is_good: true,
  };
}

function nearest_rule(row) {
  return rules_of(row).reduce((a, b) => (a && a.near >= b.near ? a : b), null);
}

/** Small is worse. Near its limit it stays so until it is well away from it. */
function rank_of(row) {
  const { look } = look_of(row);
  if (look === "open") return 0;
  if (look === "half") return 1;
  if (look === "hand" || row.admitted < 1) return 2;
  const rule = nearest_rule(row),
    near = rule ? rule.near : 0;
  row.is_warm = near >= 0.5 || (row.is_warm && near >= 0.3);
  return row.is_warm ? 3 : 4;
}

function before(a, b) {
  return (
    a.rank - b.rank ||
    (a.row.policy < b.row.policy
      ? -1
      : a.row.policy > b.row.policy
        ? 1
        : a.row.key < b.row.key
          ? -1
          : a.row.key > b.row.key
            ? 1
            : 0)
  );
}

function at_most(ms, is_over) {
  return ms == null ? "-" : (is_over ? "> " : "≤ ") + lasting(ms);
}

// ---- A tile -------------------------------------------------------------------------------------

function make_rule() {
  const text = h("span"),
    limit = h("span", { class: "limit" }),
    bar = h("i");
  const element = h("div", { class: "rule" }, text, limit, h("div", { class: "bar" }, bar));
  return {
    element,
    show(rule) {
      element.hidden = !rule;
      say(text, rule ? rule.text : "");
      say(limit, rule ? rule.limit : "");
      const near = rule ? Math.min(1, rule.near) : 0;
      bar.style.setProperty("--share", near.toFixed(3));
      const is_good = rule && rule.is_good;
      mark(bar, "data-good", is_good ? "" : null);
      mark(bar, "data-near", !is_good && near >= 0.5 && near < 1 ? "" : null);
      mark(bar, "data-over", !is_good && near >= 1 ? "" : null);
    },
  };
}

function name_of(row) {
  return [row.policy, h("span", { class: "slash" }, "/"), h("span", { class: "key" }, row.key)];
}

function make_state() {
  const word = h("span"),
    soon = h("span", { class: "soon" }),
    element = h("p", { class: "state" }, word, soon);
  return {
    element,
    show(row) {
      const { look, text } = look_of(row);
      if (element.dataset.sign !== look) {
        element.querySelector("svg")?.remove();
        element.prepend(sign(look));
        element.dataset.sign = look;
      }
      say(word, text);
      say(soon, soon_of(row));
      return look;
    },
  };
}

function make_numbers() {
  const b = ["calls/s", "p50", "p99", "fallbacks"].map(name => h("dd", { "data-is": name }));
  const element = h(
    "dl",
    { class: "numbers" },
    ...b.map(dd => h("div", {}, h("dt", {}, dd.dataset.is), dd)),
  );
  return {
    element,
    show(row) {
      const policy = live.policies.get(row.policy);
      say(b[0], number(rate(row)));
      say(b[1], at_most(row.p50, row.over > 1));
      say(b[2], at_most(row.p99, row.over > 0));
      say(b[3], policy && policy.fallbacks != null ? percent(policy.fallbacks) : "-");
    },
  };
}

function why_of(row) {
  if (row.set) return row.set;
  if (!row.moved_at) return "Has not moved since neap started";
  return `${ago(now_ms() - row.moved_at)} ago: ${row.moved.replace(/^\w+ -> \w+: /, "")}`;
}

function make_tile(row) {
  const state = make_state(),
    rule = make_rule(),
    numbers = make_numbers(),
    why = h("p", { class: "why" });
  const spark = fill(bars(), { class: "spark" }, []);
  state.element.id = "state-" + ++made; // read out with the name
  const link = h(
    "a",
    { "aria-describedby": state.element.id, href: "#/" + path_of(row) },
    ...name_of(row),
  );
  const element = h(
    "li",
    { class: "tile" },
    state.element,
    h("h3", {}, link),
    spark,
    rule.element,
    numbers.element,
    why,
  );
  const tile = { row, element, link, is_seen: false, rank: 4 };
  element.tile = tile;
  tile.show = () => {
    mark(element, "data-look", state.show(tile.row));
    rule.show(
      round_of(tile.row) ||
        (tile.row.state === "closed" && tile.row.mode !== "forced_open"
          ? nearest_rule(tile.row)
          : null),
    );
    numbers.show(tile.row);
    say(why, why_of(tile.row));
    if (!tile.row.is_drawn) {
      draw_bars(spark, tile.row.ring);
      tile.row.is_drawn = true;
    }
  };
  tile.tick = () => {
    state.show(tile.row);
    say(why, why_of(tile.row));
  };
  return tile;
}

// Only what is on the screen is kept up to date.
const watcher = new IntersectionObserver(
  entries => {
    for (const entry of entries) {
      const { tile } = entry.target;
      tile.is_seen = entry.isIntersecting;
      if (tile.is_seen) {
        tile.row.is_drawn = false;
        tile.show();
      }
    }
  },
  { rootMargin: "300px" },
);

// ---- All of them --------------------------------------------------------------------------------

const wanted = { text: "", states: new Set() };

/** What it is to those who call. */
const FORCED = { forced_open: "open", forced_closed: "closed" };
const acting = row => FORCED[row.mode] || row.state;

/** What the buttons above ask for: one breaker may be several. */
const SORTS = {
  open: row => acting(row) === "open",
  half_open: row => acting(row) === "half_open",
  hand: row => row.mode !== "auto",
  closed: row => acting(row) === "closed",
};

function is_wanted(row) {
  if (wanted.states.size && ![...wanted.states].some(sort => SORTS[sort](row))) return false;
  if (!wanted.text) return true;
  const text = `${row.policy}/${row.key} ${why_of(row)} ${row.state} ${row.mode}`.toLowerCase();
  return wanted.text.split(/\s+/).every(word => text.includes(word));
}

let is_pointed = false,
  touched_at = 0;

/** Whether tiles have to stay where they are. */
function is_held() {
  return (
    is_pointed ||
    Date.now() - touched_at < 5000 ||
    ($("tiles").contains(document.activeElement) && document.activeElement !== $("tiles"))
  );
}

/** Puts the tiles into their order; held ones stay, and new ones come at the end. */
function place() {
  const list = $("tiles"),
    shown = [...tiles.values()].filter(tile => is_wanted(tile.row)).sort(before);
  const keep = new Set(shown),
    held = is_held();
  for (const tile of tiles.values())
    if (!keep.has(tile) && tile.element.parentNode) tile.element.remove();
  if (held) {
    const late = shown.filter(tile => !tile.element.parentNode);
    list.append(...late.map(tile => tile.element));
    const order = [...list.children],
      moved = shown.filter((tile, i) => order[i] !== tile.element && tile.rank < 2).length;
    $("held").hidden = moved === 0;
    say($("held"), "Tiles are held while you are among them.");
  } else {
    $("held").hidden = true;
    shown.forEach((tile, i) => {
      if (list.children[i] !== tile.element)
        list.insertBefore(tile.element, list.children[i] || null);
    });
  }
  $("none").hidden = shown.length > 0;
  say(
    $("none"),
    tiles.size
      ? "No breaker is like that."
      : live.heard_at
        ? "There is no breaker yet: one is made by the first call of its key."
        : "",
  );
}

function show_tiles() {
  for (const [id, tile] of tiles) {
    if (live.rows.has(id)) continue;
    watcher.unobserve(tile.element);
    tile.element.remove();
    tiles.delete(id);
  }
  for (const [id, row] of live.rows) {
    let tile = tiles.get(id);
    if (!tile) {
      tile = make_tile(row);
      tiles.set(id, tile);
      watcher.observe(tile.element);
    }
    if (tile.row !== row) row.is_drawn = false;
    tile.row = row;
    tile.rank = rank_of(row);
    mark(tile.element, "data-look", look_of(row).look);
    if (tile.is_seen) tile.show();
  }
  place();
}

function tick_tiles() {
  for (const tile of tiles.values()) if (tile.is_seen) tile.tick();
}
