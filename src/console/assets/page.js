// Conveniences of every page: copy buttons, local times, keys, the palette, saved views, forms kept over the end of a session.
// Pages work without them.

class CopyText extends HTMLElement {
  connectedCallback() {
    if (!navigator.clipboard) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = this.dataset.label;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(this.querySelector("code").textContent);
      button.textContent = this.dataset.done;
      setTimeout(() => { button.textContent = this.dataset.label; }, 2000);
    });
    this.prepend(button);
  }
}
customElements.define("copy-text", CopyText);

const language = document.documentElement.lang;
const relative = new Intl.RelativeTimeFormat(language, { style: "short" });
const exact = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });

/** A moment is relative, and ages; on hover it is in the reader's zone and in UTC. One that was clicked stays exact. */
function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    const seconds = Math.trunc((at - Date.now()) / 1000);
    const [size, unit] = [[172800, "day"], [3600, "hour"], [60, "minute"], [0, "second"]].find(([from]) => Math.abs(seconds) >= from);
    const count = unit === "day" ? Math.round(seconds / 86400) : Math.trunc(seconds / (size || 1));
    const text = time.dataset.exact ? exact.format(at) : relative.format(count, unit);
    if (time.textContent !== text) time.textContent = text;
    time.title = `${exact.format(at)} · ${time.dateTime}`;
  }
}
showTimes(document);
setInterval(() => document.hidden || showTimes(document), 5000);
document.addEventListener("visibilitychange", () => document.hidden || showTimes(document));
document.addEventListener("fragment", (event) => showTimes(event.target));
document.addEventListener("click", ({ target }) => {
  const time = target.closest("time[datetime]");
  if (!time || time.closest("a, summary")) return;
  if (time.dataset.exact) delete time.dataset.exact;
  else time.dataset.exact = "1";
  showTimes(time.parentElement);
});

// The navigation scrolls where the window is small, in a narrow one to the side: the entry of this page is in view.
const entry = document.querySelector(".side nav a[aria-current]");
const scrolled = entry?.closest("nav");
if (scrolled) {
  scrolled.scrollLeft = entry.offsetLeft - scrolled.offsetLeft - 48;
  scrolled.scrollTop = Math.max(entry.offsetTop - scrolled.offsetTop - scrolled.clientHeight / 2, 0);
}

// The list beside a search follows what is typed; the form itself works without scripts.
for (const form of document.querySelectorAll("form[data-follows]")) {
  let [timer, last] = [];
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const address = `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`;
      last = address;
      const answer = await fetch(address);
      if (!answer.ok || last !== address) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const [before, after] = [document.getElementById("found"), page.getElementById("found")];
      if (!before || !after || last !== address) return;
      before.replaceChildren(...after.childNodes);
      before.dispatchEvent(new Event("fragment", { bubbles: true }));
      history.replaceState(null, "", address);
    }, 150);
  });
}

// The palette: what the search finds is shown below its field, while one types.
const palette = document.querySelector("form[data-palette]");
if (palette) {
  const [field, found] = [palette.elements.q, document.getElementById("palette")];
  let timer;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const asked = field.value.trim();
      if (!asked) return found.replaceChildren();
      const answer = await fetch(`${palette.getAttribute("action")}?${new URLSearchParams({ q: asked })}`);
      if (!answer.ok || answer.redirected || field.value.trim() !== asked) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      found.replaceChildren(...page.getElementById("found")?.childNodes ?? []);
    }, 150);
  });
  palette.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const stops = [field, ...found.querySelectorAll("a")];
    if (event.key === "Escape") { found.replaceChildren(); field.value = ""; field.blur(); }
    if (!step) return;
    event.preventDefault();
    stops[Math.min(Math.max(stops.indexOf(document.activeElement) + step, 0), stops.length - 1)].focus();
  });
  // What was found is in front of the page: it goes when the reader is elsewhere.
  for (const act of ["click", "focusin"]) {
    document.addEventListener(act, ({ target }) => palette.contains(target) || found.replaceChildren());
  }
}

// Ctrl-Enter sends the form of a text that has lines.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !event.target.matches("textarea")) return;
  event.preventDefault();
  event.target.form?.requestSubmit(event.target.form.querySelector("button.main, button"));
});

const isWriting = (event) => event.target.closest("input:not([type=checkbox]), textarea, select");
const isPlain = (event) => !(event.ctrlKey || event.metaKey || event.altKey || isWriting(event));

// `/` leads to the search of the page, or to the palette; Ctrl-K to the palette; `g` and a letter to a page; `?` shows them.
let awaited = 0;
document.addEventListener("keydown", (event) => {
  const isChord = (event.ctrlKey || event.metaKey) && event.key === "k";
  if (!isChord && !isPlain(event)) return;
  const field = isChord ? palette?.elements.q
    : event.key === "/" ? document.querySelector("main [data-search]") ?? palette?.elements.q : undefined;
  if (field) {
    event.preventDefault();
    field.focus();
    return;
  }
  const isSecond = Date.now() < awaited;
  awaited = event.key === "g" && !isSecond ? Date.now() + 1500 : 0;
  const link = isSecond && document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
  if (link) {
    event.preventDefault();
    event.stopImmediatePropagation();
    link.click();
  } else if (event.key === "?" && palette) location.assign(palette.action);
});

// A queue is worked through by keys: j and k lead to its rows, others to the field or link that names them.
document.addEventListener("keydown", (event) => {
  if (!isPlain(event)) return;
  const named = [...document.querySelectorAll("[data-key]")].find((element) => element.dataset.key === event.key);
  const rows = [...document.querySelectorAll("[data-rows] tbody th a, [data-rows] .choose > input")];
  const step = { j: 1, k: -1 }[event.key];
  if (!named && !(step && rows.length)) return;
  event.preventDefault();
  if (named?.matches("a")) named.click();
  else if (named) named.focus();
  else rows[Math.min(Math.max(rows.indexOf(document.activeElement) + step, 0), rows.length - 1)].focus();
});

/** The caller, with its tenant. */
const who = () => document.querySelector(".who")?.textContent;

// Views: addresses of this page with their filters, by name, kept by the browser for who saved them.
class SavedViews extends HTMLElement {
  connectedCallback() {
    this.key = `views ${who()} ${location.pathname}`;
    this.show();
  }

  get views() {
    return JSON.parse(localStorage.getItem(this.key) ?? "[]");
  }

  save(views) {
    localStorage.setItem(this.key, JSON.stringify(views.slice(-20)));
    this.show();
  }

  show() {
    const views = this.views;
    const query = new URLSearchParams([...new URLSearchParams(location.search)].filter(([name, value]) => value && name !== "lang" && name !== "after"));
    const part = (kind, properties, ...inside) => {
      const made = Object.assign(document.createElement(kind), properties);
      made.append(...inside);
      return made;
    };
    const links = views.flatMap(({ name, query }, at) => [
      part("a", { href: `${location.pathname}?${query}`, textContent: name }),
      part("button", { type: "button", className: "plain", textContent: "×", title: this.dataset.remove, ariaLabel: `${this.dataset.remove}: ${name}`,
        onclick: () => this.save(views.filter((_, other) => other !== at)) }),
    ]);
    const name = part("input", { required: true, maxLength: 60, placeholder: this.dataset.name, ariaLabel: this.dataset.name });
    const form = part("form", { onsubmit: (event) => {
      event.preventDefault();
      this.save([...views, { name: name.value, query: `${query}` }]);
    } }, name, part("button", { className: "small", textContent: this.dataset.save }));
    const isFiltered = document.querySelector(`main form[method=get][action="${location.pathname}"], main nav.small`);
    const isNew = isFiltered && `${query}` && !views.some((view) => view.query === `${query}`);
    this.replaceChildren(...(views.length ? [part("span", { textContent: this.dataset.title })] : []), ...links, ...(isNew ? [form] : []));
  }
}
customElements.define("saved-views", SavedViews);

// What was written into forms is kept over the end of the session, for who wrote it, until the page is open again.
const KEPT = "forms";
const written = (form) => [...form.elements].filter((field) => field.name && field.type !== "hidden" && field.type !== "password" && field.type !== "file" && !field.matches("button"));
const isSignIn = document.querySelector("form[action='/console/sign-in']") !== null;
const forms = () => [...document.querySelectorAll("main form[method=post]")];

function keepForms() {
  const kept = forms().map((form) => written(form).map(({ name, value, checked }) => [name, value, checked]));
  sessionStorage.setItem(KEPT, JSON.stringify({ who: who(), page: location.pathname, kept }));
}

function restoreForms() {
  const { ended, who: writer, page, kept } = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  if (isSignIn) {
    if (kept) sessionStorage.setItem(KEPT, JSON.stringify({ ended: true, who: writer, page, kept }));
    return;
  }
  sessionStorage.removeItem(KEPT);
  if (!ended || writer !== who() || page !== location.pathname) return;
  forms().forEach((form, at) => written(form).forEach((field, place) => {
    const isBox = field.type === "checkbox" || field.type === "radio";
    // A box is found by its value: meanwhile another one may be at its place, such as another call to approve.
    const same = isBox && kept[at]?.find(([name, value]) => name === field.name && value === field.value);
    const [name, value, checked] = same || (isBox ? [] : kept[at]?.[place] ?? []);
    if (field.name !== name) return;
    if (isBox) field.checked = checked;
    else field.value = value;
    const details = field.closest("details");
    if (value && details) details.open = true;
  }));
}
restoreForms();
document.addEventListener("submit", ({ target }) => { if (!isSignIn && target.closest("main form[method=post]")) keepForms(); });

// The number of things that wait, while the page is open; by the same question it learns that the session has ended.
class InboxCount extends HTMLElement {
  connectedCallback() {
    this.timer = setInterval(() => document.hidden || this.ask(), 10_000);
    document.addEventListener("visibilitychange", () => document.hidden || this.ask());
    document.addEventListener("lost", () => this.ask());
    this.ask();
  }

  async ask() {
    const answer = await fetch(this.getAttribute("src")).catch(() => undefined);
    if (answer?.status === 401) return this.end();
    if (!answer?.ok) return;
    const { waiting } = await answer.json();
    this.textContent = waiting || "";
    if (this.waiting !== undefined && this.waiting !== waiting) this.readInbox();
    this.waiting = waiting;
    document.title = document.title.replace(/^(\(\d+\) )?/, waiting ? `(${waiting}) ` : "");
  }

  /** The inbox is read again, unless the reader is at work in it. */
  async readInbox() {
    const part = document.getElementById("inbox");
    const isUsed = () => part.contains(document.activeElement) || part.querySelector(":checked, details[open]");
    if (!part || isUsed()) return;
    const answer = await fetch(location.pathname);
    if (!answer.ok || answer.redirected || isUsed()) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    part.replaceChildren(...page.getElementById("inbox")?.childNodes ?? []);
    part.dispatchEvent(new Event("fragment", { bubbles: true }));
  }

  /** Nothing on the page is true any more. */
  end() {
    if (this.ended) return;
    this.ended = true;
    clearInterval(this.timer);
    const notice = document.createElement("p");
    notice.className = "notice warn";
    notice.setAttribute("role", "alert");
    const link = document.createElement("a");
    link.href = `/console/sign-in?${new URLSearchParams({ to: location.pathname + location.search })}`;
    link.textContent = this.dataset.signIn;
    link.addEventListener("click", keepForms);
    notice.append(this.dataset.ended, " ", link);
    document.querySelector("main").prepend(notice);
    document.dispatchEvent(new Event("ended"));
  }
}
customElements.define("inbox-count", InboxCount);

document.getElementById("problems")?.focus();
