// The pages work without this script. It refreshes a page in place, and shows times in the viewer's zone.
"use strict";

const main = document.getElementById("main");
const box = document.getElementById("live");
const forgotten = 10 * 60 * 1000; // a tab that was not touched for so long stops
let touched = Date.now();
let timer = 0;

function localTimes(within) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const t of within.querySelectorAll("time")) {
    const at = new Date(t.dateTime);
    if (!isNaN(at)) t.title = at.toLocaleString() + " " + zone;
  }
}

async function refresh() {
  if (!box.checked || document.hidden) return;
  if (Date.now() - touched > forgotten) {
    box.checked = false;
    return;
  }
  const busy = main.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
  if (!busy && !main.querySelector("details[open]")) {
    try {
      const answer = await fetch(location.href, { headers: { "X-Pawl-Part": "main" } });
      if (answer.ok) {
        const part = new DOMParser().parseFromString(await answer.text(), "text/html");
        const y = scrollY;
        main.replaceChildren(...part.body.childNodes);
        localTimes(main);
        scrollTo(0, y);
      }
    } catch {
      // the next one may succeed
    }
  }
  timer = setTimeout(refresh, 1000 * main.dataset.live);
}

function start() {
  clearTimeout(timer);
  if (box.checked) timer = setTimeout(refresh, 1000 * main.dataset.live);
}

localTimes(document);
if (box) {
  box.checked = sessionStorage.getItem("live") === "on";
  box.addEventListener("change", () => {
    sessionStorage.setItem("live", box.checked ? "on" : "off");
    start();
  });
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => (touched = Date.now()));
  document.addEventListener("visibilitychange", start);
  start();
}
