// main.js: what is heard becomes what is seen.

const CHIPS = [
  ["open", "open"],
  ["half_open", "half-open"],
  ["hand", "by hand"],
  ["closed", "closed"],
];
const MOST_SAID = 3; // transitions told one by one
const LATE_MS = 5000; // then it is said that neap takes its time

/** For those who listen: only what moved. */
function announce(text) {
  const log = $("said");
  while (log.childElementCount > 20) log.firstChild.remove();
  log.append(h("p", {}, text));
}

function say_changes(changes) {
  const moved = changes.filter(
    ({ row, was }) => was && (row.state !== was.state || row.mode !== was.mode),
  );
  if (moved.length > MOST_SAID) {
    const open = moved.filter(({ row }) => look_of(row).look === "open").length;
    announce(`${moved.length} breakers have moved, ${open} of them are open now.`);
  } else {
    for (const { row, was } of moved) {
      const why = row.state !== was.state && row.moved ? ": " + row.moved : "";
      announce(`${row.policy} ${row.key}: ${look_of(row).text}${why}`);
    }
  }
}

function show_counts() {
  const counts = { open: 0, half_open: 0, hand: 0, closed: 0 };
  for (const row of live.rows.values()) {
    for (const sort in SORTS) counts[sort] += SORTS[sort](row);
  }
  for (const button of $("states").children) {
    const n = counts[button.dataset.state];
    say(button.firstChild, number(n));
    mark(button, "data-any", n > 0 ? "" : null);
    button.hidden = n === 0 && button.dataset.state === "hand" && !wanted.states.has("hand");
  }
  const bad = [];
  if (counts.open) bad.push(counts.open + " open");
  if (counts.half_open) bad.push(counts.half_open + " half-open");
  document.title = (live.is_lost ? "? " : "") + (bad.length ? bad.join(", ") + " - neap" : "neap");
}

/** Policies whose files have a mistake. */
function show_faults() {
  const wrong = [...live.policies.values()].filter(policy => policy.error),
    box = $("faults");
  box.hidden = wrong.length === 0;
  const text = JSON.stringify(wrong.map(policy => [policy.name, policy.error]));
  if (box.dataset.text === text) return;
  box.dataset.text = text;
  box.replaceChildren(
    h(
      "ul",
      {},
      ...wrong.map(policy =>
        h(
          "li",
          {},
          h("b", {}, policy.name),
          ": the last good version of the policy serves. ",
          h("span", {}, policy.error),
        ),
      ),
    ),
  );
}

// ---- Whether neap answers -----------------------------------------------------------------------

function banner(kind, ...children) {
  const box = $("banner");
  box.hidden = !kind;
  box.className = kind || "";
  box.replaceChildren(...children);
}

let banner_age = null,
  banner_wait = null;

/** neap does not answer: what is known stays, dimmed, with its age. */
function lost(error) {
  document.body.classList.toggle("is-old", live.heard_at > 0);
  mark($("link"), "data-link", "lost");
  say($("link"), "no answer");
  if (!banner_age) {
    banner_age = h("span", { "aria-live": "off" });
    banner_wait = h("span", { "aria-live": "off" });
    banner(
      "lost",
      h("b", {}, "neap does not answer."),
      banner_age,
      banner_wait,
      h("button", { type: "button", onclick: () => poll() }, "Try now"),
    );
  }
  if (error.status) say(banner_age, error.message);
  show_counts();
  tick();
}

function found(is_restarted) {
  document.body.classList.remove("is-old");
  banner_age = null;
  banner(
    "back",
    is_restarted
      ? "neap was started again: what happened before is not known to it."
      : "neap answers again.",
  );
  setTimeout(() => {
    if ($("banner").className === "back") banner(null);
  }, 15000);
}

/** Another neap answers than the one that this page is from; it may say other things. */
function other_page() {
  const reload = h("button", { type: "button", onclick: () => location.reload() }, "Load its page");
  banner("other", "This is another version of neap than the one this page is from.", reload);
}

/** What poll() has heard. */
function shown({ changes, is_restarted, is_first }, was_lost) {
  mark($("link"), "data-link", "live");
  say($("link"), "live");
  if (was_lost || is_restarted) found(is_restarted);
  if (live.is_other_page && $("banner").className !== "other") other_page();
  if (!is_first && !is_restarted) say_changes(changes);
  show_tiles();
  show_counts();
  show_faults();
  show_detail();
  if (detail.id) refresh_detail();
  if ($("act").open && act) act.show();
  say(
    $("about"),
    `${counted(live.rows.size, "breaker")}. / filters, Enter shows one. The same in a terminal: neap top`,
  );
}

function tick() {
  if (banner_age) {
    if (live.heard_at) say(banner_age, `What you see is ${ago(Date.now() - live.heard_at)} old.`);
    const wait_ms = Math.max(0, live.next_at - Date.now()) + 999;
    say(banner_wait, asking ? "Asking now." : `Trying again in ${ago(wait_ms)}.`);
  } else if (live.heard_at) {
    tick_tiles();
    if (detail.id) show_detail();
    const late_ms = Date.now() - live.heard_at;
    if (late_ms > LATE_MS && !document.hidden) {
      mark($("link"), "data-link", "asking");
      say($("link"), `waiting for ${ago(late_ms)}`);
    }
  }
}

// ---- What the user does -------------------------------------------------------------------------

function begin() {
  for (const [state, text] of CHIPS) {
    $("states").append(
      h(
        "button",
        {
          type: "button",
          "data-state": state,
          "aria-pressed": "false",
          onclick: event => {
            const button = event.currentTarget,
              is_on = !wanted.states.has(state);
            if (is_on) wanted.states.add(state);
            else wanted.states.delete(state);
            button.setAttribute("aria-pressed", String(is_on));
            place();
            show_counts();
          },
        },
        h("b", {}, "0"),
        " " + text,
      ),
    );
  }
  $("filter").addEventListener("submit", event => event.preventDefault());
  $("search").addEventListener("input", () => {
    wanted.text = $("search").value.trim().toLowerCase();
    place();
  });
  $("skip").addEventListener("click", event => {
    event.preventDefault();
    (document.querySelector(".tile a") || $("tiles")).focus();
  });
  const list = $("tiles");
  list.addEventListener("pointerenter", event => {
    if (event.pointerType === "mouse") is_pointed = true;
  });
  list.addEventListener("pointerleave", () => {
    is_pointed = false;
    place();
  });
  list.addEventListener("pointerdown", () => {
    touched_at = Date.now();
  });
  list.addEventListener("focusout", () => setTimeout(place));
  document.addEventListener("keydown", event => {
    const is_typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !is_typing && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      $("search").focus();
    }
  });
  $("detail").addEventListener("cancel", event => {
    event.preventDefault();
    close_detail();
  });
  $("detail").addEventListener("click", event => {
    if (event.target === $("detail") && event.offsetX < 0) close_detail();
  });
  $("ask").addEventListener("close", poll);
  window.addEventListener("hashchange", follow_hash);
  window.addEventListener("popstate", follow_hash);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) poll();
  });
  setInterval(tick, 1000);
  follow_hash();
  poll();
}

begin();
