// The knobs: whatever is set, the plays are asked for again, and the address keeps it.
{
  const form = document.getElementById("knobs"), shown = document.getElementById("plays");
  let running = new AbortController(), soon = 0;
  const settings = () => new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const play = async () => {
    running.abort();
    running = new AbortController();
    const address = "?" + settings();
    const time = shown.querySelector(".time input");
    try {
      const answer = await fetch(address, { signal: running.signal });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      history.replaceState(null, "", address);
      shown.replaceChildren(...page.getElementById("plays").childNodes);
    } catch (error) {
      if (error.name !== "AbortError") shown.textContent = "The program does not answer: " + error.message;
      return;
    }
    for (const section of shown.querySelectorAll("section")) {
      if (time) section.querySelector(".time input").value = time.value;
      bring(section);
    }
  };
  const later = () => { clearTimeout(soon); soon = setTimeout(play, 150); };
  const length = (ms) => { // 840000 is 14m
    const sign = ms < 0 ? "-" : "", n = Math.abs(ms);
    const parts = [[Math.floor(n / 60000), "m"], [Math.floor(n % 60000 / 1000), "s"], [n % 1000, "ms"]];
    return sign + (parts.filter(([count]) => count).map(([count, unit]) => count + unit).join("") || "0s");
  };
  form.addEventListener("input", ({ target }) => {
    if (target.dataset.of) {
      const field = form.elements[target.dataset.of];
      const at = (field.value || field.placeholder).split("@")[1];
      field.value = length(Number(target.value)) + (at ? "@" + at : "");
    }
    if (target.name === "case") // it has knobs of its own
      location.search = new URLSearchParams([...settings()].filter(([name]) => name === "case" || name === "generation"));
    else later();
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); play(); });
}
