// What the page adds for browsers with JavaScript: events as they happen, filters while typing, sorting by a click.
// Everything here is read from the server's own tables; without this file the same is done by forms.

const body = document.body;

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// What the server wrote, before this script adds to it; see "Parts that follow".
const written = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part.id, part.innerHTML]));

const link = (text, way) => element("a", text, { href: way });
const shortTime = (moment) => moment.slice(0, 19).replace("T", " ");

// Filters: rows whose text does not hold the words are hidden. The server's filter stays for lists of many pages.
function filterRows(input, table) {
  const many = table.closest("form.bulk");
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    if (many) showFilter(many, words.join(" "), table);
  };
  input.addEventListener("input", apply);
  apply();
}

// Many at once: a box that ticks what is seen, and how many are ticked. "All" means those that the filter leaves.
function seenRows(table) {
  return [...table.tBodies[0].rows].filter((row) => !row.hidden);
}

function showFilter(form, query, table) {
  const all = form.querySelector("[data-all]");
  form.elements.q.value = query;
  const count = seenRows(table).length;
  all.textContent = `Edit all ${count}${query ? " that match" : ""}…`;
  all.disabled = !count;
}

for (const form of document.querySelectorAll("form.bulk")) {
  const table = form.querySelector("table");
  const ticked = form.querySelector("[data-ticked]");
  const boxes = () => [...form.querySelectorAll("input[name=on]")];
  const every = element("input", "", { type: "checkbox", "aria-label": "Select all that are shown" });
  table.tHead.querySelector(".pick").replaceChildren(every);
  const count = () => {
    const number = boxes().filter((box) => box.checked).length;
    ticked.textContent = number ? `Edit ${number} selected…` : "Edit selected…";
    ticked.disabled = !number;
    const seen = seenRows(table);
    every.checked = seen.length > 0 && seen.every((row) => row.querySelector("input[name=on]").checked);
    every.indeterminate = number > 0 && !every.checked;
  };
  every.addEventListener("change", () => {
    for (const row of seenRows(table)) row.querySelector("input[name=on]").checked = every.checked;
    count();
  });
  form.addEventListener("change", (event) => event.target !== every && count());
  addEventListener("pageshow", count);
  count();
}

for (const form of document.querySelectorAll("[data-filter], [data-filter-here]")) {
  const input = form.querySelector("input[type=search]");
  let table = form.nextElementSibling;
  while (table && !table.matches("table, form.bulk")) table = table.nextElementSibling;
  if (table?.matches("form")) table = table.querySelector("table");
  if (!input || !table) continue;
  form.hidden = false;
  if (form.hasAttribute("data-filter-here")) form.addEventListener("submit", (event) => event.preventDefault());
  if (!document.querySelector(".pager")) filterRows(input, table);
}

// Sorting: a click on a header, or Enter on it; numbers in names count as numbers.
const order = new Intl.Collator("en", { numeric: true });

function sortable(table) {
  const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
  if (table.tBodies[0]?.rows.length < 2 || table.tBodies[0]?.dataset.feed || document.querySelector(".pager")) return;
  heads.forEach((head, column) => {
    if (head.matches(".pick, .act")) return;
    const button = element("button", head.textContent, { type: "button", class: "sort" });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (row) => row.cells[column]?.textContent.trim() ?? "";
      const rows = [...table.tBodies[0].rows].sort((one, other) => order.compare(text(one), text(other)));
      table.tBodies[0].append(...(down ? rows.reverse() : rows));
    });
  });
}

document.querySelectorAll("table.data").forEach(sortable);

// Parts that follow what nodes do: asked for again when something has happened, now and then, and the less often the
// longer an answer takes. A part that somebody works in stays as it is until the next time.
const renewal = { isUnderWay: false, isDue: false };

const tablesOf = (part) => (part.matches("tbody") ? [part.closest("table")] : [...part.querySelectorAll("table.data")]);

function renewPart(part, fresh) {
  const active = document.activeElement;
  const key = part.contains(active) && active.matches("[data-key] > summary") ? active.parentElement.dataset.key : "";
  if (!fresh || written.get(part.id) === fresh.innerHTML || (part.contains(active) && !key)) return;
  written.set(part.id, fresh.innerHTML);
  const open = new Set([...part.querySelectorAll("details[open][data-key]")].map((one) => one.dataset.key));
  const orders = tablesOf(part).map((table) => {
    const head = table.querySelector("th[aria-sort]");
    return head && [head.cellIndex, head.getAttribute("aria-sort") === "descending" ? 2 : 1];
  });
  part.replaceChildren(...fresh.childNodes);
  // What somebody unfolded stays so, and the focus where it was.
  for (const one of part.querySelectorAll("details[data-key]")) {
    one.open = open.has(one.dataset.key);
    if (key && one.dataset.key === key) one.querySelector("summary").focus();
  }
  tablesOf(part).forEach((table, at) => {
    if (!part.matches("tbody")) sortable(table);
    const [column, clicks] = orders[at] ?? [];
    const head = clicks && table.tHead.rows[0].cells[column];
    head?.removeAttribute("aria-sort");
    for (let click = 0; head && click < clicks; click += 1) head.querySelector("button.sort")?.click();
  });
}

async function renew() {
  const parts = [...document.querySelectorAll("[data-live]")];
  if (!parts.length || document.visibilityState === "hidden") return;
  renewal.isDue = renewal.isUnderWay;
  if (renewal.isUnderWay) return;
  renewal.isUnderWay = true;
  const begin = performance.now();
  try {
    for (const address of new Set(parts.map((part) => part.dataset.live || location.href))) {
      const answer = await fetch(address, { headers: { "Bedplate-Renewal": "yes" }, redirect: "error" });
      if (!answer.ok) continue;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of parts)
        if ((part.dataset.live || location.href) === address) renewPart(part, page.getElementById(part.id));
    }
  } catch {
    // The head starts again, or the login has ended: the next event, or the next click, tells.
  }
  setTimeout(() => {
    renewal.isUnderWay = false;
    if (renewal.isDue) renew();
  }, Math.max(1000, 20 * (performance.now() - begin)));
}

if (written.size) setInterval(renew, 30000);

// Live events.
const live = document.getElementById("live");
const state = document.getElementById("stream-state");
const shown = 5;

function toast(...parts) {
  const line = element("p");
  line.append(...parts);
  live.append(line);
  while (live.children.length > shown) live.firstElementChild.remove();
  setTimeout(() => line.remove(), 12000);
}

function row(cells) {
  const made = element("tr", "", { role: "row", class: "fresh" });
  for (const [label, ...parts] of cells) {
    const cell = element("td", "", { role: "cell", "data-label": label });
    cell.append(...parts);
    made.append(cell);
  }
  return made;
}

function addEvent(moment, kind, who, what) {
  const list = document.querySelector("[data-feed=events]");
  if (!list) return false;
  const time = element("time", shortTime(moment), { datetime: moment });
  list.prepend(row([["Time", time], ["Kind", element("span", kind, { class: `kind ${kind}` })], ["Who", who], ["What", ...what]]));
  while (list.rows.length > 300) list.lastElementChild.remove();
  return true;
}

function onRevision(event) {
  const one = JSON.parse(event.data);
  if (one.number <= Number(body.dataset.revision)) return;
  body.dataset.revision = one.number;
  document.getElementById("revision").textContent = one.number;
  const name = () => link(`Revision ${one.number}`, `/history/${one.number}`);
  const said = ` ${one.text} `;
  if (!addEvent(one.time, "revision", one.author, [name(), said, element("small", one.objects)]))
    toast(name(), ` of ${one.author}: ${one.text || one.objects}`);
}

function onNotice(event) {
  const one = JSON.parse(event.data);
  if (one.number <= Number(body.dataset.notice)) return;
  body.dataset.notice = one.number;
  const device = link(one.host, `/show/device/${encodeURIComponent(one.host)}`);
  if (addEvent(one.time, one.severity, device, [one.text])) return;
  const list = document.querySelector("[data-feed=notice]");
  if (!list) {
    if (one.severity !== "notice") toast(`${one.host}: ${one.text}`);
    return;
  }
  const line = element("li", "", { class: `${one.severity} fresh` });
  const what = element("span", "", { class: "what" });
  what.append(element("b", one.host), ` ${one.text}`);
  const when = element("small");
  when.append(element("time", shortTime(one.time), { datetime: one.time }));
  line.append(what, " ", when);
  list.prepend(line);
  while (list.children.length > Number(list.dataset.most)) list.lastElementChild.remove();
}

// Forms that the server checks while they are typed. What nobody touched follows what was typed elsewhere: the network of
// a cluster with another name is another one.
function told(field, control, problem) {
  const id = `${field.dataset.field}-err`;
  let line = document.getElementById(id);
  field.classList.toggle("wrong", Boolean(problem));
  if (!problem) {
    line?.remove();
    control?.removeAttribute("aria-invalid");
    return;
  }
  if (!line) {
    line = element("p", "", { class: "error", id, role: "status" });
    field.querySelector(".doc").before(line);
  }
  line.textContent = problem;
  control?.setAttribute("aria-invalid", "true");
}

for (const form of document.querySelectorAll("form[data-check]")) {
  const touched = new Set();
  let number = 0;
  const ask = async () => {
    const own = (number += 1);
    let answer;
    try {
      const sent = await fetch(form.dataset.check, { method: "POST", body: new URLSearchParams(new FormData(form)) });
      if (!sent.ok) return;
      answer = await sent.json();
    } catch {
      return; // The head is away, or the login has ended: sending the form tells.
    }
    if (own !== number) return;
    for (const field of form.querySelectorAll("[data-field]")) {
      const one = answer[field.dataset.field];
      const control = form.elements[field.dataset.field];
      const before = form.elements[field.dataset.field.replace("a.", "p.")];
      if (!one) continue;
      field.hidden = !one.asked;
      const isTold = touched.has(field.dataset.field) || field.classList.contains("wrong");
      told(field, control instanceof Element ? control : null, isTold ? one.problem : "");
      if (!before || control.value.trim() !== before.value) continue;
      before.value = one.text;
      control.value = one.text;
    }
  };
  let timer = 0;
  form.addEventListener("input", (event) => {
    const field = event.target.closest("[data-field]");
    if (field) touched.add(field.dataset.field);
    clearTimeout(timer);
    timer = setTimeout(ask, 300);
  });
}

// What changes by itself is read again from the server now and then, while it is seen and nothing in it has the focus.
const changing = document.querySelector("[data-refresh]");

async function refresh() {
  if (document.visibilityState !== "hidden" && !changing.contains(document.activeElement)) {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = answer.ok && page.getElementById(changing.id);
      if (fresh) {
        changing.dataset.refresh = fresh.dataset.refresh;
        changing.replaceChildren(...fresh.childNodes);
      }
    } catch {
      // The head is away: what is shown stays until it answers again.
    }
  }
  setTimeout(refresh, 1000 * Number(changing.dataset.refresh));
}

if (changing) setTimeout(refresh, 1000 * Number(changing.dataset.refresh));

// A browser opens few connections to one host: only tabs that are seen hold one. What happened meanwhile comes later.
let source = null;

function stop() {
  source?.close();
  source = null;
}

function listen() {
  if (source || document.visibilityState === "hidden") return;
  const asked = new URLSearchParams({ revision: body.dataset.revision, notice: body.dataset.notice });
  source = new EventSource(`/events/stream?${asked}`);
  source.addEventListener("revision", onRevision);
  source.addEventListener("notice", onNotice);
  for (const kind of ["revision", "notice", "health", "progress", "setup"]) source.addEventListener(kind, renew);
  source.addEventListener("open", () => {
    body.dataset.stream = "open";
    renew();
    if (state) state.textContent = "live";
  });
  source.addEventListener("error", () => {
    body.dataset.stream = "lost";
    if (state) state.textContent = "connection lost, trying again";
    // A browser tries again by itself, unless the answer was none: a login that ended, a head that starts again.
    if (source?.readyState === EventSource.CLOSED) {
      stop();
      setTimeout(listen, 5000);
    }
  });
}

if (live && "EventSource" in window) {
  document.addEventListener("visibilitychange", () => (document.visibilityState === "hidden" ? stop() : listen()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", listen);
  listen();
}
