// Conveniences of every page: copy buttons, local times, keys. Pages work without them.

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

/** Adds the local time to what a moment shows on hover. */
function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const local = new Date(time.dateTime).toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "medium" });
    time.title = `${local} · ${time.dateTime}`;
  }
}
localTimes(document);
document.addEventListener("fragment", (event) => localTimes(event.target));

// In a narrow window the navigation is a line that scrolls: the entry of this page is in view.
const entry = document.querySelector("nav a[aria-current]");
if (entry) entry.parentElement.scrollLeft = entry.offsetLeft - entry.parentElement.offsetLeft - 48;

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

document.addEventListener("keydown", (event) => {
  const field = document.querySelector("[data-search]");
  const isWriting = event.target.closest("input, textarea, select");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isWriting || !field) return;
  event.preventDefault();
  field.focus();
});

// A queue is worked through by keys: j and k lead to its rows, others to the field or link that names them.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const named = [...document.querySelectorAll("[data-key]")].find((element) => element.dataset.key === event.key);
  const rows = [...document.querySelectorAll("[data-rows] tbody th a")];
  const step = { j: 1, k: -1 }[event.key];
  if (!named && !(step && rows.length)) return;
  event.preventDefault();
  if (named?.matches("a")) named.click();
  else if (named) named.focus();
  else rows[Math.min(Math.max(rows.indexOf(document.activeElement) + step, 0), rows.length - 1)].focus();
});

document.getElementById("problems")?.focus();
