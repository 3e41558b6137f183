// act.js: what an operator does, and the token that it takes. Nothing is done before it is said in
// full what will happen, who does it and why.

const FOR = [
  ["5m", "5 minutes"],
  ["10m", "10 minutes"],
  ["30m", "30 minutes"],
  ["1h", "1 hour"],
  ["4h", "4 hours"],
  ["", "until it is given back"],
];
const TRIP_FOR = [
  ["", "the policy's cooldown"],
  ["30s", "30 seconds"],
  ["1m", "1 minute"],
  ["5m", "5 minutes"],
];
const LENGTHS = { s: 1000, m: 60000, h: 3600000 };

const STAYS = "A reload of the policy keeps it; a restart of neap does not.";

function ends(time) {
  if (!time) return "until somebody gives it back";
  return `until ${clock(now_ms() + Number(time.slice(0, -1)) * LENGTHS[time.slice(-1)])}`;
}

/** Each: its name, the path, what is sent, how long it may last, and what it says will happen. */
const DEEDS = {
  forced_open: {
    name: "Force open…",
    verb: "Force open",
    path: "mode",
    mode: "forced_open",
    times: FOR,
    time: "10m",
    is_stern: true,
    says: (row, time) => [
      `No call is let through ${ends(time)}. Every caller gets the policy's fallbacks, or a refusal.`,
      STAYS,
    ],
  },
  forced_closed: {
    name: "Force closed…",
    verb: "Force closed",
    path: "mode",
    mode: "forced_closed",
    times: FOR,
    time: "10m",
    is_stern: true,
    says: (row, time) => [
      `Every call is let through ${ends(time)}, however many fail: the dependency gets all the load.`,
      "The breaker goes on counting underneath, and decides again afterwards. " + STAYS,
    ],
  },
  policy: {
    name: "Give back to the policy…",
    verb: "Give back",
    path: "mode",
    mode: "policy",
    says: row => [
      `What was set by hand ends now. The policy decides again; the breaker itself is ${STATES[row.state].toLowerCase()}.`,
    ],
  },
  trip: {
    name: "Trip…",
    verb: "Trip",
    path: "trip",
    times: TRIP_FOR,
    time: "",
    is_stern: true,
    says: (row, time) => [
      `The breaker opens ${time ? ends(time) : "for its policy's cooldown"}, as if it had tripped. Then probes decide whether it closes.`,
    ],
  },
  reset: {
    name: "Reset…",
    verb: "Reset",
    path: "reset",
    says: row => [
      row.state === "closed"
        ? "The breaker stays closed, and forgets its window and its backoff."
        : "The breaker closes now, with an empty window and no backoff: all calls go to the dependency at once.",
      ...(row.mode === "forced_open" ? ["It is forced open by hand, which stays so."] : []),
    ],
  },
};

/** Those that would change something now. */
function deeds_of(row) {
  const deeds = [];
  if (row.mode === "forced_open" || row.mode === "forced_closed" || row.mode === "shadow")
    deeds.push("policy");
  if (row.mode !== "forced_open") deeds.push("forced_open");
  if (row.mode !== "forced_closed") deeds.push("forced_closed");
  if (row.state === "closed") deeds.push("trip");
  deeds.push("reset");
  return deeds;
}

function quoted(text) {
  return /^[\w./:@%+-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
}

/** The same in a terminal. */
function command_of(deed, row, given) {
  const words = ["neap", deed.path, quoted(row.policy + "/" + row.key)];
  if (deed.mode) words.push(deed.mode);
  if (given.for) words.push("--for", given.for);
  words.push("--by", quoted(given.by || "NAME"));
  if (given.reason) words.push("--reason", quoted(given.reason));
  return words.join(" ");
}

let act = null; // what is being confirmed: { show }

function field(label, hint, control) {
  return h("label", {}, label, hint && h("span", {}, hint), control);
}

function options_of(deed) {
  if (!deed.times) return null;
  return h(
    "select",
    {},
    ...deed.times.map(([value, text]) =>
      h("option", { value, selected: value === deed.time }, text),
    ),
  );
}

async function do_it(deed, row, given, error, button) {
  button.disabled = true;
  error.hidden = true;
  try {
    await ask(`breakers/${path_of(row)}/${deed.path}`, given);
    $("act").close();
    announce(`${deed.verb}: done for ${row.policy} ${row.key}.`);
    poll();
    refresh_detail();
  } catch (fault) {
    error.hidden = false;
    say(
      error,
      fault.status === 401
        ? "The token is not the right one."
        : "Not done: " + (fault.status ? fault.message : "neap does not answer."),
    );
    if (fault.status === 401) ask_token("A token is needed.");
  }
  button.disabled = false;
}

function open_act(name, id) {
  const deed = DEEDS[name],
    row = live.rows.get(id),
    dialog = $("act");
  if (is_nameless(row))
    return announce("A browser can't name this key; in a terminal: " + command_of(deed, row, {}));
  const by = h("input", {
    type: "text",
    required: true,
    maxlength: 64,
    autocomplete: "username",
    value: kept("neap.by") || "",
  });
  const reason = h("input", { type: "text", required: true, maxlength: 200, autocomplete: "off" });
  const time = options_of(deed),
    effect = h("div", { id: "act-effect" }),
    command = h("pre", { class: "command mono" });
  const error = h("p", { class: "error", role: "alert", hidden: true });
  const button = h(
    "button",
    { type: "submit", class: deed.is_stern ? "main stern" : "main" },
    deed.verb,
  );
  const given = () => {
    const sent = { by: by.value.trim(), reason: reason.value.trim() };
    if (deed.mode) sent.mode = deed.mode;
    if (time && time.value) sent.for = time.value;
    return sent;
  };
  const form = h(
    "form",
    {
      onsubmit: event => {
        event.preventDefault();
        keep("neap.by", by.value.trim());
        do_it(deed, live.rows.get(id) || row, given(), error, button);
      },
      oninput: () => act.show(),
    },
    time && field("How long", null, time),
    field("Your name", "It is in the log, and shown to everybody.", by),
    field("Why", null, reason),
    error,
    h("div", {}, h("p", { class: "limit" }, "The same in a terminal:"), command),
    h(
      "div",
      { class: "row" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      button,
    ),
  );
  dialog.replaceChildren(
    h("h2", { id: "act-title" }, deed.verb + ": ", ...name_of(row)),
    effect,
    form,
  );
  dialog.setAttribute("aria-describedby", "act-effect");
  let last = "";
  act = {
    show() {
      const current = live.rows.get(id) || row,
        said = deed.says(current, time ? time.value : null);
      if (said.join() !== last) effect.replaceChildren(...said.map(text => h("p", {}, text)));
      last = said.join();
      say(command, command_of(deed, current, given()));
    },
  };
  act.show();
  dialog.showModal();
  (by.value ? reason : by).focus();
}

// ---- The token ----------------------------------------------------------------------------------

/** Asks once; it stays in this tab, and goes nowhere but to neap. */
function ask_token(wrong) {
  const dialog = $("ask");
  if (dialog.open) return;
  const token = h("input", { type: "password", required: true, autocomplete: "off" });
  dialog.replaceChildren(
    h("h2", { id: "ask-title" }, "This neap asks for its token"),
    h(
      "p",
      {},
      "It is the line in the file that neap was started with: ",
      h("code", {}, "--admin-token-file"),
      ". It is kept in this tab until the tab is closed.",
    ),
    h(
      "form",
      {
        onsubmit: event => {
          event.preventDefault();
          live.token = token.value.trim();
          keep("neap.token", live.token);
          dialog.close();
        },
      },
      field("Token", null, token),
      h("p", { class: "error", role: "alert" }, wrong),
      h(
        "div",
        { class: "row" },
        h("button", { type: "submit", class: "main" }, "Show the breakers"),
      ),
    ),
  );
  dialog.showModal();
}
