"use strict";
// The slider of each case: a line through the drawings, and the two documents at that instant.
for (const section of document.querySelectorAll("section")) {
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
  const figures = [...section.querySelectorAll("figure")].map((figure) => ({
    cursor: figure.querySelector(".cursor"), docs: figure.querySelectorAll(".docs pre"),
  }));
  const show = () => {
    const now = Number(slider.value);
    shown.textContent = clock(noon + now).slice(0, 8);
    slider.setAttribute("aria-valuetext", shown.textContent);
    figures.forEach(({ cursor, docs }, i) => {
      cursor.setAttribute("transform", "translate(" + now / length * WIDTH + " 0)");
      const lock = at(plays[i].l, now), holder = lock && lock.get("process");
      docs[0].textContent = text("config.locks", lock);
      docs[1].textContent = text("config.lockpings", holder ? at(plays[i].p[holder] || [], now) : null);
    });
  };
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
}
