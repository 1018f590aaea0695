/**
 * The turns before the one in hand, as the server gets them and as the page shows them.
 *
 * @typedef {object} Message as the server writes and reads it
 * @property {"system" | "user" | "assistant"} role
 * @property {string | null} content
 * @property {string} [reasoning_content]
 */

export class Conversation {
  /** @type {Message[]} */
  messages = [];
  #root;

  /** @param {HTMLElement} root where turns are shown */
  constructor(root) {
    this.#root = root;
  }

  /**
   * Keep an exchange.
   * @param {string} question
   * @param {Message} answer
   * @param {Node[]} shown the answer as it was shown
   */
  keep(question, answer, shown) {
    this.messages.push({ role: "user", content: question }, answer);
    this.#root.append(turn("You", [question]), turn("Model", shown));
  }

  clear() {
    this.messages = [];
    this.#root.replaceChildren();
  }
}

/**
 * @param {string} speaker
 * @param {(Node | string)[]} content
 */
function turn(speaker, content) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  name.className = "speaker";
  name.textContent = speaker;
  const text = document.createElement("div");
  text.className = "said";
  text.append(...content);
  item.append(name, text);
  return item;
}
