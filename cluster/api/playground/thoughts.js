/** An answer's tokens in the order they came: those of its thoughts in a fold, the others behind it. */

export class Thoughts {
  #root;
  #fold = document.createElement("details");
  #count = document.createElement("summary");
  /** @type {{span: HTMLElement, start: number}[]} */
  #others = []; // that may still turn out to be of the thoughts
  #length = 0; // of the text so far, in characters as the server counts them
  #reasoningLen = 0;
  #numFolded = 0;

  /** @param {HTMLElement} root where the answer is shown */
  constructor(root) {
    this.#root = root;
    this.#fold.className = "thoughts";
    this.#fold.append(this.#count);
  }

  /**
   * Show what a chunk brought.
   * @param {{span: HTMLElement, text: string}[]} tokens
   * @param {number | null} reasoningLen characters of the text that are thoughts, if it is known
   */
  add(tokens, reasoningLen) {
    for (const { span, text } of tokens) {
      this.#others.push({ span, start: this.#length });
      this.#length += [...text].length;
      this.#root.append(span);
    }
    if (reasoningLen === null) return;
    if (reasoningLen > this.#reasoningLen) this.#foldTo(reasoningLen);
    if (reasoningLen < this.#length) this.#others = []; // the text has gone beyond its thoughts
  }

  /** @param {number} reasoningLen */
  #foldTo(reasoningLen) {
    if (this.#reasoningLen === 0) this.#root.prepend(this.#fold);
    this.#reasoningLen = reasoningLen;
    const folded = this.#others.filter(({ start }) => start < reasoningLen);
    this.#others = this.#others.filter(({ start }) => start >= reasoningLen);
    this.#fold.append(...folded.map(({ span }) => span));
    this.#numFolded += folded.length;
    this.#count.textContent = `Thoughts, ${this.#numFolded} tokens`;
  }
}
