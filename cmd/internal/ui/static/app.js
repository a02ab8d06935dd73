"use strict";
// The page works without this script. The script sets the theme, shows the views of the event stream, and
// handles keys.

const themes = ["auto", "light", "dark"];

function theme(choice) {
  if (choice) {
    try { localStorage.setItem("theme", choice); } catch { /* the browser has no storage */ }
  } else {
    try { choice = localStorage.getItem("theme"); } catch { /* the browser has no storage */ }
  }
  choice = themes.includes(choice) ? choice : "auto";
  document.documentElement.dataset.theme = choice;
  const button = document.getElementById("theme");
  if (button) button.textContent = "Theme: " + choice;
  return choice;
}
theme(); // before anything is painted

// morph makes one element equal to another. It keeps equal parts, so the focus, the selection, opened details
// and typed text stay.
function morph(from, to) {
  for (const a of [...from.attributes]) {
    if (!to.hasAttribute(a.name) && !(a.name === "open" && from.localName === "details")) from.removeAttribute(a.name);
  }
  for (const a of to.attributes) {
    if (from.getAttribute(a.name) !== a.value) from.setAttribute(a.name, a.value);
  }
  if (from.localName === "input" && from !== document.activeElement) from.value = to.getAttribute("value") || "";
  const keyed = new Map();
  for (const c of from.children) if (c.dataset.k !== undefined) keyed.set(c.dataset.k, c);
  let at = from.firstChild;
  for (const want of [...to.childNodes]) {
    const key = want.nodeType === 1 ? want.dataset.k : undefined;
    let have = null;
    if (key !== undefined) {
      have = keyed.get(key) || null;
      keyed.delete(key);
    } else if (at && at.nodeName === want.nodeName && !(at.nodeType === 1 && at.dataset.k !== undefined)) {
      have = at;
    }
    if (!have) {
      from.insertBefore(want, at);
      continue;
    }
    if (have === at) at = at.nextSibling;
    else from.insertBefore(have, at);
    if (have.nodeType === 1) morph(have, want);
    else if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

let source = null, retry = 0, readAt = 0; // readAt: the time of the read, by performance.now()

function say(state, text) {
  const live = document.getElementById("live");
  live.dataset.state = state;
  live.textContent = text;
}

// age shows the age of the view if it is at least 5 s.
function age() {
  if (!source || !readAt) return;
  const seconds = Math.floor((performance.now() - readAt) / 1000);
  if (document.querySelector("[data-k=problem]")) say("stale", "reads fail");
  else if (document.querySelector("[data-k=void]")) say("stale", "no locks");
  else if (seconds >= 5) say("stale", "read " + seconds + " s ago");
  else say("on", "live");
}
setInterval(age, 1000);

function close() {
  readAt = 0;
  clearTimeout(retry);
  if (source) source.close();
  source = null;
}

// open starts the stream of the page at the present address.
function open() {
  close();
  const view = document.getElementById("view");
  if (!view || view.dataset.live === undefined || document.hidden) return;
  const mine = source = new EventSource(location.pathname + location.search);
  source.addEventListener("view", (e) => {
    if (source !== mine) return;
    const next = document.createElement("template");
    next.innerHTML = e.data;
    const whole = document.createElement("div");
    whole.append(next.content);
    for (const a of view.attributes) whole.setAttribute(a.name, a.value);
    morph(view, whole);
    readAt = performance.now() - Number(e.lastEventId);
    age();
  });
  source.onerror = () => {
    if (source !== mine) return;
    say("lost", "disconnected");
    close();
    retry = setTimeout(open, 2000);
  };
}

let typing = 0;

// search shows the results of the typed text on the same page.
function search(form) {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const q = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...q]) if (!value) q.delete(name);
    const text = q.toString();
    history.replaceState(null, "", form.getAttribute("action") + (text ? "?" + text : ""));
    open();
  }, 150);
}

// step moves the focus to another row.
function step(by) {
  const rows = [...document.querySelectorAll("a.row")];
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  if (next) next.focus();
}

document.addEventListener("DOMContentLoaded", () => {
  theme();
  document.getElementById("theme").addEventListener("click", () =>
    theme(themes[(themes.indexOf(theme()) + 1) % themes.length]));
  document.addEventListener("input", (e) => {
    if (e.target.type === "search") search(e.target.form);
  });
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.target.matches("input, textarea, select")) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    const link = [...document.querySelectorAll("[data-hotkey]")].find((l) => l.dataset.hotkey === e.key);
    if (e.key === "/") {
      const q = document.getElementById("q");
      if (q) q.focus();
    } else if (e.key === "j" || e.key === "k") step(e.key === "j" ? 1 : -1);
    else if (link) link.click();
    else return;
    e.preventDefault();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); say("off", "paused"); } else open();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (e) => { if (e.persisted) open(); });
  open();
});
