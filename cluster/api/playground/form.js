/** The fields of the page as the body of a request. Ranges are the server's to check. */

/** Number fields that go to the server under their own name, when filled in. */
const NUMBERS = [
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "max_tokens",
  "repetition_penalty",
  "frequency_penalty",
  "presence_penalty",
];

export class Form {
  /** @param {HTMLFormElement} form */
  constructor(form) {
    this.form = form;
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  /** Whether every number is one; the browser says which is not. */
  get isReadable() {
    return this.form.reportValidity();
  }

  get isChat() {
    return this.#value("input") === "chat";
  }

  /** @returns {"on" | "off" | "both"} */
  get speculation() {
    return /** @type {"on" | "off" | "both"} */ (this.#value("speculation"));
  }

  get isGreedy() {
    return Number(this.#value("temperature") || 1) === 0;
  }

  /** The mode chosen; "" is the server's own. */
  get verification() {
    return this.#value("verification");
  }

  get text() {
    return this.#value("text");
  }

  set text(text) {
    const place = /** @type {HTMLTextAreaElement} */ (this.form.elements.namedItem("text"));
    place.value = text;
    place.focus();
  }

  get system() {
    return this.#value("system");
  }

  /**
   * The seed as it was typed, or one drawn here. Not a number: those of JavaScript end at 2^53.
   * @returns {string}
   */
  get seed() {
    const typed = this.#value("seed").trim();
    return typed || String(crypto.getRandomValues(new Uint32Array(1))[0]);
  }

  /**
   * The body of a request.
   * @param {Record<string, unknown>} input model and prompts or messages
   * @param {string} seed
   * @param {boolean} isSpeculated
   * @returns {string} JSON
   */
  body(input, seed, isSpeculated) {
    /** @type {Record<string, unknown>} */
    const fields = { ...input, stream: true, return_token_texts: true, return_trees: true };
    for (const name of NUMBERS) {
      if (this.#value(name) !== "") fields[name] = Number(this.#value(name));
    }
    if (this.#value("prediction") !== "") {
      fields.prediction = { type: "content", content: this.#value("prediction") };
    }
    const k = this.#value("k") === "" ? null : Number(this.#value("k"));
    fields.speculation = { enabled: isSpeculated, k, verification: this.verification || null };
    const isInteger = /^(0|-?[1-9]\d*)$/.test(seed);
    const seedJson = isInteger ? seed : JSON.stringify(seed);
    return `${JSON.stringify(fields).slice(0, -1)},"seed":${seedJson}}`;
  }

  /** @param {string} name */
  #value(name) {
    const field = this.form.elements.namedItem(name);
    return /** @type {HTMLInputElement | RadioNodeList} */ (field).value;
  }
}
