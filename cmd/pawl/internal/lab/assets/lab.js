// Shows the state that the lab sends, and presses buttons without leaving the page.
"use strict";

const set = (element, text) => {
  if (element && element.textContent !== String(text)) element.textContent = text;
};

function make(tag, text) {
  const e = document.createElement(tag);
  e.textContent = text;
  return e;
}

function seconds(ms) {
  return ms < 0 ? "expired for " + (-ms / 1000).toFixed(1) + " s" : (ms / 1000).toFixed(1) + " s left";
}

function camp(c) {
  const row = document.getElementById("camp-" + c.name);
  for (const cell of row.querySelectorAll("td")) {
    set(cell, c[cell.dataset.of]);
    if (cell.dataset.of === "doubled" || cell.dataset.of === "lost") cell.classList.toggle("bad", c[cell.dataset.of] > 0);
  }
  for (const w of c.workers) {
    const p = document.querySelector("#worker-" + w.number + " [data-camp=" + c.name + "]");
    set(p.querySelector("[data-of=state]"), w.state);
    set(p.querySelector("[data-of=pid]"), w.pid || "–");
    set(p.querySelector("[data-of=in_hand]"), w.in_hand);
    const lease = p.querySelector("[data-of=lease]");
    if (lease) {
      set(lease, w.lease_ms === null ? (w.state === "frozen" ? "expired" : "–") : seconds(w.lease_ms));
      p.querySelector("meter").value = Math.max(0, w.lease_ms || 0);
    }
  }
}

function story(press) {
  const article = document.createElement("article");
  article.append(make("h3", press.text + ", " + press.ago.toFixed(0) + " s ago" + (press.failed ? ": " + press.failed : "")));
  for (const camp of press.idle || []) article.append(make("p", camp + ": no order being handled"));
  for (const t of press.traces) {
    const head = make("h4", t.camp + ": " + t.key + ", " + t.verdict);
    if (t.verdict === "doubled" || t.verdict === "lost") head.className = "bad";
    const list = document.createElement("ol");
    for (const l of t.lines) {
      const sign = l.after < 0 ? "−" : "+";
      list.append(make("li", sign + Math.abs(l.after).toFixed(2) + " s " + (l.worker ? "worker " + l.worker + ": " : "") + l.text));
    }
    article.append(head, list);
  }
  return article;
}

function takeover(c, t) {
  const row = document.createElement("tr");
  const head = make("th", c.title);
  head.scope = "row";
  row.append(head, ...[t.key, t.first, t.fence || "none", t.second, t.newer || "none", t.late].map((text) => make("td", text)));
  if (t.late === "written") row.lastChild.className = "bad";
  if (t.late === "refused") row.lastChild.className = "good";
  return row;
}

const takeovers = document.querySelector("#takeovers tbody");
const stories = document.getElementById("stories");

function show(state) {
  set(document.getElementById("sent"), state.sent);
  set(document.getElementById("seconds"), state.seconds.toFixed(0));
  set(document.getElementById("database"), state.database);
  set(document.getElementById("sending"), state.paused ? "stopped" : "on");
  if (state.camps.some((c) => !document.getElementById("camp-" + c.name))) {
    location.reload(); // another way stands beside Pawl
    return;
  }
  state.camps.forEach(camp);
  takeovers.replaceChildren(...state.camps.flatMap((c) => c.takeovers.map((t) => takeover(c, t))));
  stories.replaceChildren(...(state.presses || []).map(story));
}

const source = new EventSource("events");
const said = document.getElementById("said");
const gone = "The lab does not respond. If it has ended, start it again with: pawl demo --watch";
source.onmessage = (event) => {
  if (said.textContent === gone) set(said, "");
  show(JSON.parse(event.data));
};
source.onerror = () => set(said, gone); // the browser tries again by itself
document.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const answer = await fetch(event.target.action, { method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams(new FormData(event.target)) });
    set(said, answer.ok ? "" : await answer.text());
  } catch {
    set(said, gone);
  }
});
