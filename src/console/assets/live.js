// The live parts of pages, by server-sent events.

// An element that follows an event stream, and shows whether it does.
class Live extends HTMLElement {
  #events = [];
  #retry;

  connectedCallback() {
    this.state = document.createElement("span");
    this.state.className = "live";
    this.append(this.state);
    document.addEventListener("ended", () => this.#end());
    this.#open();
  }

  disconnectedCallback() {
    this.#end();
  }

  /** Also after the stream was opened again. */
  on(name, act) {
    this.#events.push([name, act]);
    this.source.addEventListener(name, act);
  }

  #open() {
    this.source = new EventSource(this.getAttribute("src"));
    this.source.addEventListener("open", () => this.showState("live"));
    this.source.addEventListener("error", () => this.#lost());
    for (const [name, act] of this.#events) this.source.addEventListener(name, act);
  }

  /** The browser tries again by itself, unless the server has refused; then it may be that the session has ended. */
  #lost() {
    this.showState("lost");
    document.dispatchEvent(new Event("lost"));
    if (this.source.readyState === EventSource.CLOSED) this.#retry = setTimeout(() => this.#open(), 5000);
  }

  #end() {
    clearTimeout(this.#retry);
    this.source.close();
    this.state.textContent = "";
  }

  showState(state) {
    this.state.dataset.state = state;
    this.state.textContent = this.dataset[state];
  }
}

// Parts of a page that the server sends again as they change. One that has the focus or an open disclosure stays as it is:
// nothing moves under the reader.
class LiveParts extends Live {
  connectedCallback() {
    super.connectedCallback();
    this.on("parts", (event) => {
      for (const [id, content] of JSON.parse(event.data)) {
        const part = document.getElementById(id);
        if (!part || part.contains(document.activeElement) || part.querySelector("details[open]")) continue;
        // The server has escaped every text in it.
        part.innerHTML = content;
        part.dispatchEvent(new Event("fragment", { bubbles: true }));
      }
    });
  }
}
customElements.define("live-parts", LiveParts);

const MAX_WAITING = 500;

// The live tail of the calls. New lines wait above the table until they are asked for: nothing moves under the reader.
class LiveCalls extends Live {
  #lines = [];

  connectedCallback() {
    super.connectedCallback();
    this.button = document.createElement("button");
    this.button.type = "button";
    this.button.hidden = true;
    this.button.addEventListener("click", () => this.#insertLines());
    this.setAttribute("aria-live", "polite");
    this.append(this.button);
    this.on("calls", (event) => {
      this.#lines = JSON.parse(event.data).concat(this.#lines).slice(0, MAX_WAITING);
      this.button.hidden = false;
      this.button.textContent = `${this.#lines.length} ${this.dataset.new}`;
    });
  }

  #insertLines() {
    let rows = document.querySelector("table.list tbody");
    if (!rows) {
      document.querySelector(".empty").replaceWith(document.getElementById("call-table").content);
      rows = document.querySelector("table.list tbody");
    }
    // The server has escaped every text in them.
    const lines = document.createElement("template");
    lines.innerHTML = this.#lines.join("");
    rows.prepend(lines.content);
    rows.dispatchEvent(new Event("fragment", { bubbles: true }));
    this.#lines = [];
    this.button.hidden = true;
  }
}
customElements.define("live-calls", LiveCalls);

// A page whose part `#live` is read again after each event, at most twice a second.
class LivePage extends Live {
  connectedCallback() {
    super.connectedCallback();
    const ofPlan = ["plan", "step", "evaluation", "node", "status", "finished"];
    const ofRun = ["tool_use", "tool_result", "approval", "subagent_begin", "subagent_end", "result", "system"];
    for (const name of ofPlan.concat(ofRun)) {
      this.on(name, () => this.#later());
    }
  }

  #later() {
    this.timer ??= setTimeout(() => this.#read(), 500);
  }

  async #read() {
    this.timer = undefined;
    const answer = await fetch(location.href);
    // After the end of the session it is the page for the sign-in.
    if (!answer.ok || answer.redirected) return this.showState("lost");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [before, after] = [document.getElementById("live"), page.getElementById("live")];
    const open = [...before.querySelectorAll("details")].map((part) => part.open);
    const focused = before.contains(document.activeElement) && document.activeElement.value;
    before.replaceChildren(...after.childNodes);
    if (focused) before.querySelector(`button[value="${CSS.escape(focused)}"]`)?.focus();
    before.dispatchEvent(new Event("fragment", { bubbles: true }));
    before.querySelectorAll("details").forEach((part, at) => { part.open = open[at] ?? part.open; });
    // Nothing more happens to it.
    if (!page.querySelector("live-page")) this.remove();
  }
}
customElements.define("live-page", LivePage);

// A run of an agent while it grows. At its end the page is read again, with the receipts of its calls.
class LiveRun extends HTMLElement {
  #calls = new Map();

  connectedCallback() {
    this.source = new EventSource(this.getAttribute("src"));
    const on = (name, act) => this.source.addEventListener(name, (event) => act(JSON.parse(event.data)));
    on("text_delta", ({ text, parent_tool_use_id: parent }) => { if (!parent) { this.#text(text); this.#decided(); } });
    on("tool_use", ({ tool_use_id: id, tool_name: name }) => { this.#call(id, name); this.#decided(); });
    on("approval", () => this.#readDecision());
    on("tool_result", ({ tool_use_id: id, is_error: failed }) => this.#answered(id, failed));
    on("system", ({ subtype }) => { if (subtype === "finish") this.#end(); });
    this.source.addEventListener("error", (event) => {
      // Also the name of an event of the run: that one has data.
      if (event.data) this.#failed(JSON.parse(event.data).message);
      else document.dispatchEvent(new Event("lost"));
    });
  }

  disconnectedCallback() {
    this.source.close();
  }

  #text(text) {
    if (!this.writing) {
      this.writing = document.createElement("div");
      this.writing.className = "prose";
      this.append(this.writing);
    }
    this.writing.append(text);
  }

  #call(id, name) {
    this.writing = undefined;
    const line = document.createElement("p");
    line.className = "tool-call";
    line.textContent = `… ${name}`;
    this.#calls.set(id, [line, name]);
    this.append(line);
  }

  #answered(id, failed) {
    const [line, name] = this.#calls.get(id) ?? [];
    if (line) line.textContent = `${failed ? "✕" : "✓"} ${name}`;
  }

  /** The run goes on: nothing is to be decided any more. */
  #decided() {
    document.getElementById("decision")?.replaceChildren();
  }

  /** What is to be decided is on the page, as the server shows it now: the event may be an old one. */
  async #readDecision() {
    const answer = await fetch(this.dataset.page);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [before, after] = [document.getElementById("decision"), page.getElementById("decision")];
    if (before && after) before.replaceChildren(...after.childNodes);
  }

  #failed(message) {
    this.source.close();
    const line = document.createElement("p");
    line.className = "bad-text";
    line.setAttribute("role", "alert");
    line.textContent = `✕ ${message}`;
    this.append(line);
  }

  #end() {
    this.source.close();
    history.replaceState(null, "", `${this.dataset.page}#end`);
    location.reload();
  }
}
customElements.define("live-run", LiveRun);
