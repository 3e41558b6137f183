// detail.js: all about one breaker, at an address of its own: #/POLICY/KEY

const detail = { id: null, view: null, said: null };

function id_of_hash() {
  const parts = location.hash.match(/^#\/([^/]+)\/(.+)$/);
  if (!parts) return null;
  try {
    return JSON.stringify([decodeURIComponent(parts[1]), decodeURIComponent(parts[2])]);
  } catch {
    return null;
  }
}

// ---- Its parts ----------------------------------------------------------------------------------

function section(title, ...children) {
  return h("section", {}, h("h3", {}, title), ...children);
}

const BAND = { open: 6, half_open: 4, closed: 2 }; // heights, so that colour does not tell it alone

/** The states of the same minutes, from its transitions, the newest first. */
function draw_states(into, row, moves) {
  const span = live.steps * live.step_ms,
    begin = now_ms() - span,
    parts = [];
  let state = row.state,
    end = span;
  const put = from => {
    const y = 6 - BAND[state];
    parts.push(
      svg("rect", { x: from, y, width: end - from, height: BAND[state], class: "is_" + state }),
    );
    end = from;
  };
  for (const move of moves.filter(one => !one.shadow)) {
    if (move.at <= begin) break;
    state = move.to;
    put(Math.min(end, move.at - begin));
    state = move.from;
  }
  put(0);
  mark(into, "viewBox", `0 0 ${span} 6`);
  into.replaceChildren(...parts);
}

function make_chart() {
  const chart = bars(),
    states = svg("svg", { class: "states", preserveAspectRatio: "none", "aria-hidden": "true" }),
    most = h("span", { class: "most" }),
    text = h("p", { class: "hidden" });
  const from = h("span");
  const element = h(
    "div",
    {},
    h("div", { class: "chart" }, chart, states, most),
    h("div", { class: "axis" }, from, h("span", {}, "now")),
    h(
      "p",
      { class: "legend" },
      ...[
        ["ok", "good"],
        ["slow", "good but slow"],
        ["failed", "failed"],
        ["refused", "refused"],
      ].map(([name, said]) => h("span", { class: name }, said)),
      "Below them: its state.",
    ),
    text,
  );
  return {
    element,
    show(row, said) {
      if (said) draw_states(states, row, said.moves);
      const n = draw_bars(chart, row.ring) / (live.step_ms / 1000);
      say(most, n ? `${number(n)} calls/s` : "no calls");
      say(from, lasting(live.steps * live.step_ms) + " ago");
      say(
        text,
        SERIES.map((name, i) => `${name} ${number(rate(row, i))} a second`).join(", ") + ", now",
      );
    },
  };
}

function make_rules() {
  const element = h("div", { class: "rules" });
  let shown = [];
  return {
    element,
    show(row) {
      const rules = rules_of(row);
      if (shown.length !== rules.length) {
        shown = rules.map(make_rule);
        element.replaceChildren(...shown.map(one => one.element));
      }
      rules.forEach((rule, i) => shown[i].show(rule));
    },
  };
}

/** A definition list, made again only when what it says changes. */
function make_pairs() {
  const element = h("dl", { class: "pairs" });
  let last = "";
  return {
    element,
    show(pairs) {
      const text = JSON.stringify(pairs);
      if (text === last) return;
      last = text;
      element.replaceChildren(
        ...pairs.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      );
    },
  };
}

/** As the log has it. */
function in_utc(at) {
  const text = new Date(at).toISOString();
  return { datetime: text, title: text };
}

function make_moves() {
  const element = h("ol", { class: "moves" });
  let last = "";
  return {
    element,
    show(moves) {
      const text = JSON.stringify(moves);
      if (text === last) return;
      last = text;
      element.replaceChildren(
        ...(moves.length ? moves : [null]).map(move =>
          move
            ? h(
                "li",
                { class: move.shadow ? "" : move.to },
                h("time", in_utc(move.at), clock(move.at)),
                h("b", {}, move.shadow ? `shadow: ${move.to}` : STATES[move.to]),
                h("p", {}, move.text),
              )
            : h("li", {}, h("span"), h("p", {}, "None since neap started.")),
        ),
      );
    },
  };
}

function number_pairs(row, said) {
  const totals = said.breaker.totals,
    set = said.breaker.operator,
    policy = live.policies.get(row.policy);
  const refused =
    totals.refused_open + totals.refused_probes + totals.refused_forced + totals.refused_ramp;
  return [
    ["Calls/s", `${number(rate(row))} (${number(rate(row, 3))} refused)`],
    [
      "Durations",
      row.p50 == null
        ? "none in the last minutes"
        : `p50 ${at_most(row.p50, row.over > 1)}, p99 ${at_most(row.p99, row.over > 0)}`,
    ],
    [
      "Fallbacks",
      policy && policy.fallbacks != null
        ? `${percent(policy.fallbacks)} of what is asked of ${row.policy}`
        : "-",
    ],
    [
      "Probes",
      row.state === "half_open"
        ? `${row.probes_in_flight} under way, ${row.probes_succeeded} succeeded, ${row.probes_failed} failed`
        : `${number(totals.probes)} so far, ${number(totals.probes_lost)} lost`,
    ],
    ["Backoff level", number(row.level)],
    ["Neutral", percent(row.neutral_share) + (row.neutral_share > 0.5 ? ": it sees little" : "")],
    [
      "Since it began",
      `${number(totals.success + totals.slow_success)} good, ${number(totals.failure + totals.slow_failure)} failed (${number(totals.timeout)} by timeout), ${number(refused)} refused, ${lasting(totals.open_ms)} not closed`,
    ],
    ...(set
      ? [
          [
            "Mode",
            `${set.mode}, by ${set.by || "somebody"}${set.reason ? ": " + set.reason : ""}${set.at ? ", " + set.at : ""}${set.left_ms == null ? "; until somebody changes it" : ""}`,
          ],
        ]
      : []),
    ...(said.breaker.shadow ? [["Shadow", said.breaker.shadow.text]] : []),
  ];
}

/** A value of a configuration in a line, or indented. */
function plain(value) {
  if (value === null || typeof value !== "object") return String(value);
  if (Array.isArray(value))
    return value.map(plain).join(value.some(one => one && typeof one === "object") ? "\n" : ", ");
  return Object.entries(value)
    .map(
      ([name, one]) =>
        `${name} = ${one && typeof one === "object" ? JSON.stringify(one) : String(one)}`,
    )
    .join("\n");
}

function config_pairs(policy) {
  const pairs = Object.entries(policy.config || {}).map(([name, value]) => [name, plain(value)]);
  return [
    ["file", `${policy.path || "-"}${policy.hash ? ", " + policy.hash : ""}`],
    ["loaded", policy.loaded_at || "-"],
    ...(policy.last_error
      ? [["mistake", `the last good version serves: ${policy.last_error}`]]
      : []),
    ...pairs,
  ];
}

function param_pairs(params) {
  return params.params.map(param => [
    param.name,
    (params.declared ? plain(param.value ?? null) : "not declared, so not shown") +
      ` (${param.from})`,
  ]);
}

// ---- The view -----------------------------------------------------------------------------------

function make_view(row) {
  const state = make_state(),
    why = h("p", { class: "why" }),
    chart = make_chart(),
    rules = make_rules();
  const numbers = make_pairs(),
    moves = make_moves(),
    config = make_pairs(),
    params = make_pairs();
  const deeds = h("div", { class: "deeds" }),
    error = h("p", { class: "error", role: "alert", hidden: true });
  const with_params = section("Params", params.element);
  const head = h(
    "div",
    { class: "head" },
    h("h2", { id: "detail-name" }, ...name_of(row)),
    h("button", { type: "button", onclick: close_detail, "aria-label": "Close" }, "Close"),
  );
  const body = h(
    "div",
    {},
    head,
    h(
      "div",
      { class: "now" },
      state.element,
      why,
      error,
      section("Calls", chart.element),
      section("Opens when", rules.element),
      section("Now", numbers.element),
    ),
    section("By hand", deeds),
    section("Transitions", moves.element),
    section("Policy in force", config.element),
    with_params,
  );
  let offered = "";
  return {
    body,
    show(current, said) {
      mark($("detail"), "data-look", state.show(current));
      say(why, why_of(current));
      chart.show(current, said);
      rules.show(current);
      const can = deeds_of(current).join();
      if (can !== offered) {
        offered = can;
        const had_focus = deeds.contains(document.activeElement);
        deeds.replaceChildren(
          ...deeds_of(current).map(deed =>
            h(
              "button",
              { type: "button", onclick: () => open_act(deed, current.id) },
              DEEDS[deed].name,
            ),
          ),
        );
        if (had_focus) deeds.firstChild.focus();
      }
      if (!said) return;
      numbers.show(number_pairs(current, said));
      moves.show(said.moves);
      config.show(config_pairs(said.policy));
      params.show(param_pairs(said.params));
      with_params.hidden = said.params.params.length === 0;
    },
    fail(text) {
      error.hidden = !text;
      say(error, text || "");
    },
  };
}

async function refresh_detail() {
  const { id } = detail,
    row = live.rows.get(id);
  if (!row || !detail.view) return;
  if (is_nameless(row))
    return detail.view.fail("A browser can't ask for this key; neap status can.");
  try {
    const said = await ask("live/" + path_of(row));
    if (detail.id !== id || !detail.view) return;
    detail.said = said;
    detail.view.fail("");
    show_detail();
  } catch (error) {
    if (detail.id === id && detail.view && error.status) detail.view.fail(error.message);
  }
}

/** Shows again what is known. */
function show_detail() {
  if (!detail.id) return;
  const row = live.rows.get(detail.id);
  if (row && !detail.view) {
    detail.view = make_view(row);
    $("detail").replaceChildren(detail.view.body);
    refresh_detail();
  } else if (!row && !detail.view && live.heard_at) {
    $("detail").replaceChildren(
      h(
        "div",
        { class: "head" },
        h("h2", { id: "detail-name" }, JSON.parse(detail.id).join(" / ")),
        h("button", { type: "button", onclick: close_detail }, "Close"),
      ),
      h(
        "p",
        {},
        "There is no such breaker. It is made by the first call of its key, and one that is idle may make room for others.",
      ),
    );
  }
  if (row && detail.view) detail.view.show(row, detail.said);
}

function close_detail() {
  if (!location.hash) return follow_hash();
  history.pushState(null, "", location.pathname + location.search);
  follow_hash();
}

/** The address says which one is shown. */
function follow_hash() {
  const id = id_of_hash(),
    dialog = $("detail"),
    was = detail.id;
  if (id === was) return;
  Object.assign(detail, { id, view: null, said: null });
  if (id && !dialog.open) dialog.showModal();
  if (!id && dialog.open) dialog.close();
  if (!id && was) tiles.get(was)?.link.focus({ preventScroll: true });
  if (id) {
    dialog.scrollTop = 0;
    show_detail();
  }
}
