/**
 * Server-sent events out of bytes, wherever the bytes are cut. Knows nothing of what they say.
 */

export class EventStreamParser {
  #decoder = new TextDecoder(); // keeps the first bytes of a character that is still to come
  #rest = "";
  /** @type {string[]} */
  #data = []; // lines of the event that is being read

  /**
   * Take the next bytes of the stream.
   * @param {Uint8Array} bytes
   * @returns {string[]} the data of every event that is complete with them
   */
  push(bytes) {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const lines = this.#rest.split(/\r\n|\n|\r(?!$)/); // a last \r may be the first half of \r\n
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#take(line));
  }

  /**
   * @param {string} line
   * @returns {string[]}
   */
  #take(line) {
    if (line !== "") {
      if (line.startsWith("data:")) this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      return [];
    }
    const lines = this.#data;
    this.#data = [];
    return lines.length > 0 ? [lines.join("\n")] : [];
  }
}
