// The live parts of pages, by server-sent events.

// Parts of a page that the server sends again as they change. One that has the focus or an open disclosure stays as it is:
// nothing moves under the reader.
class LiveParts extends HTMLElement {
  connectedCallback() {
    this.state = document.createElement("span");
    this.state.className = "live";
    this.append(this.state);
    this.source = new EventSource(this.getAttribute("src"));
    this.source.addEventListener("open", () => this.#say("live"));
    this.source.addEventListener("error", () => this.#say("lost"));
    this.source.addEventListener("parts", (event) => {
      for (const [id, content] of JSON.parse(event.data)) {
        const part = document.getElementById(id);
        if (!part || part.contains(document.activeElement) || part.querySelector("details[open]")) continue;
        // The server has escaped every text in it.
        part.innerHTML = content;
      }
    });
  }

  disconnectedCallback() {
    this.source.close();
  }

  #say(state) {
    this.state.dataset.state = state;
    this.state.textContent = this.dataset[state];
  }
}
customElements.define("live-parts", LiveParts);

const MAX_WAITING = 500;

// The live tail of the calls. New lines wait above the table until they are asked for: nothing moves under the reader.
class LiveCalls extends HTMLElement {
  #lines = [];

  connectedCallback() {
    this.state = document.createElement("span");
    this.state.className = "live";
    this.button = document.createElement("button");
    this.button.type = "button";
    this.button.hidden = true;
    this.button.addEventListener("click", () => this.#show());
    this.setAttribute("aria-live", "polite");
    this.append(this.state, this.button);
    this.source = new EventSource(this.getAttribute("src"));
    this.source.addEventListener("open", () => this.#say("live"));
    this.source.addEventListener("error", () => this.#say("lost"));
    this.source.addEventListener("calls", (event) => {
      this.#lines = JSON.parse(event.data).concat(this.#lines).slice(0, MAX_WAITING);
      this.button.hidden = false;
      this.button.textContent = `${this.#lines.length} ${this.dataset.new}`;
    });
  }

  disconnectedCallback() {
    this.source.close();
  }

  #say(state) {
    this.state.dataset.state = state;
    this.state.textContent = this.dataset[state];
  }

  #show() {
    let rows = document.querySelector("table.list tbody");
    if (!rows) {
      document.querySelector(".empty").replaceWith(document.getElementById("call-table").content);
      rows = document.querySelector("table.list tbody");
    }
    // The server has escaped every text in them.
    const lines = document.createElement("template");
    lines.innerHTML = this.#lines.join("");
    rows.prepend(lines.content);
    this.#lines = [];
    this.button.hidden = true;
  }
}
customElements.define("live-calls", LiveCalls);
