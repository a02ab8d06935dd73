"use strict";
// The slider of each case: a line through the drawings, and the two documents at that instant.
const bring = (section) => {
  const plays = JSON.parse(section.querySelector("script").textContent);
  const length = Number(section.dataset.length);
  const slider = section.querySelector("input"), shown = section.querySelector("output");
  const pad = (n, width) => String(n).padStart(width, "0");
  const day = 86400000, noon = day / 2;
  const clock = (ms) => {
    const of = ((ms % day) + day) % day;
    return [of / 3600000, of / 60000 % 60, of / 1000 % 60].map((n) => pad(Math.floor(n), 2)).join(":") + "." + pad(of % 1000, 3);
  };
  const millis = (text) => {
    const [h, m, s] = text.split(":").map(Number);
    return Math.round((h * 60 + m) * 60000 + s * 1000);
  };
  // document as it was at an instant: null when there was none
  const at = (stretches, now) => {
    let doc = new Map(), there = false;
    for (const s of stretches) {
      if (s.a > now) break;
      there = !s.g;
      for (const name of s.x || []) doc.delete(name);
      for (const [name, value] of s.f || []) doc.set(name, value);
      const k = s.n ? Math.min(s.n - 1, Math.floor((now - s.a) / s.s)) : 0;
      for (const name of s.t || []) doc.set(name, clock(millis(doc.get(name)) + k * s.s));
      for (const name of s.i || []) doc.set(name, String(BigInt(doc.get(name)) + BigInt(k)));
    }
    return there ? doc : null;
  };
  const text = (title, doc) =>
    title + (doc ? " {\n" + [...doc].map(([name, value]) => "  " + name + ": " + value).join("\n") + "\n}" : ": no document");
  // where the drawing is wider than the screen its names stay
  const stay = (wide) => wide.querySelector(".names").setAttribute("transform",
    "translate(" + wide.scrollLeft / wide.scrollWidth * ALL + " 0)");
  const figures = [...section.querySelectorAll("figure")].map((figure) => ({
    wide: figure.querySelector(".wide"), cursor: figure.querySelector(".cursor"), docs: figure.querySelectorAll(".docs pre"),
  }));
  const show = () => {
    const now = Number(slider.value);
    shown.textContent = clock(noon + now).slice(0, 8);
    slider.setAttribute("aria-valuetext", shown.textContent);
    figures.forEach(({ wide, cursor, docs }, i) => {
      if (!cursor) return; // not possible here
      cursor.setAttribute("transform", "translate(" + now / length * WIDTH + " 0)");
      // and it follows
      wide.scrollLeft = (LEFT + now / length * WIDTH) / ALL * wide.scrollWidth - wide.clientWidth / 2;
      stay(wide);
      const lock = at(plays[i].l, now), holder = lock && lock.get("process");
      docs[0].textContent = text("config.locks", lock);
      docs[1].textContent = text("config.lockpings", holder ? at(plays[i].p[holder] || [], now) : null);
    });
  };
  // the decisive seconds: a row for each instant, an arrow for each way of a message
  const zoom = (box, play) => {
    const sent = play.m || [], lanes = [...play.w, "server"];
    const servers = Math.max(0, ...sent.map((m) => m[3]));
    for (let i = 2; i <= servers + 1; i++) lanes.push("server " + i);
    if (sent.some((m) => m[1] === "write")) lanes.push("resource");
    const left = 84, tall = 17, top = 34, wide = Math.max(left + 64 * lanes.length, Math.min(560, box.clientWidth));
    const x = (lane) => left + (lane + .5) * (wide - left) / lanes.length;
    const instants = [...new Set(sent.flatMap((m) => m.slice(4).filter((t) => t > 0)))].sort((a, b) => a - b);
    const y = (t) => top + instants.indexOf(t) * tall;
    const escaped = (s) => String(s).replace(/[&<>]/g, (c) => "&#" + c.charCodeAt(0) + ";");
    const parts = lanes.map((name, i) => `<text x="${x(i)}" y="14" text-anchor="middle">${name}</text>` +
      `<path class="lane" d="M${x(i)} 20V${top + instants.length * tall}"/>`);
    instants.forEach((t) => parts.push(`<text class="at" x="0" y="${y(t) + 3}">${clock(noon + t)}</text>`));
    const said = new Map(); // at a place: messages of one instant share it
    const arrow = (kind, x1, y1, x2, y2, words) => {
      const way = Math.sign(x2 - x1), tip = kind === "gone" ? "" : `<path class="tip" d="M${x2} ${y2}l${-7 * way} -3v6z"/>`;
      parts.push(`<path class="${kind}" d="M${x1} ${y1}L${x2} ${y2}"/>${tip}`);
      const place = `x="${x1 + 5 * way}" y="${y1 - 3}" text-anchor="${way > 0 ? "start" : "end"}"`;
      said.set(place, (said.get(place) || new Set()).add(words));
    };
    for (const [lane, kind, answer, server, from, there, back] of sent) {
      const to = x(kind === "write" ? lanes.length - 1 : play.w.length + server), at = x(lane);
      if (there) arrow("sent", at, y(from), to, y(there), kind);
      else arrow("gone", at, y(from), (at + to) / 2, y(back || from), kind);
      if (there && back > there && !answer.includes("never")) arrow("back", to, y(there), at, y(back), answer);
      else if (back) arrow("gone", at + .4 * (to - at), y(back), at, y(back), answer);
    }
    said.forEach((words, place) => parts.push(`<text ${place}>${escaped([...words].join(", "))}</text>`));
    box.insertAdjacentHTML("beforeend", `<div class="wide"><svg style="min-width:${wide}px" viewBox="0 0 ${wide} ${top + instants.length * tall + 6}" role="img" ` +
      `aria-label="messages of the decisive seconds">${parts.join("")}</svg></div>`);
  };
  for (const { wide, cursor } of figures) if (cursor) wide.addEventListener("scroll", () => stay(wide));
  section.querySelectorAll("figure").forEach((figure, i) => {
    const box = figure.querySelector(".zoom");
    if (box) box.addEventListener("toggle", () => box.querySelector("svg") || zoom(box, plays[i]));
  });
  const changes = [...new Set(plays.flatMap((p) => p.l.map((s) => Math.ceil(s.a / 1000) * 1000)))].sort((a, b) => a - b);
  for (const button of section.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      const now = Number(slider.value);
      const next = button.dataset.to > 0 ? changes.find((c) => c > now) : changes.findLast((c) => c < now);
      if (next !== undefined) slider.value = next;
      show();
    });
  }
  slider.addEventListener("input", show);
  show();
  // #CASE@12:18:50 leads to an instant
  const goTo = () => {
    const [name, time] = location.hash.slice(1).replace("%40", "@").replaceAll(/%3a/gi, ":").split("@");
    if (name !== section.id || !/^\d\d:\d\d:\d\d$/.test(time || "")) return;
    slider.value = millis(time) - noon;
    show();
    section.scrollIntoView();
  };
  addEventListener("hashchange", goTo);
  goTo();
};
for (const section of document.querySelectorAll("section")) bring(section);
