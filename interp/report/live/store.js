// The state of one panel: plain data, with undo, written into the page's address if it has one.
//
//   tokens: the input, or counts: how many of each slider's token. off: silenced parts, "0.3" (layer 0, head 3) or
//   "0.mlp". ratios: attention set by hand, or null. at: the position looked at. head: the head looked at. pin: an input that
//   stays beside the present one, or null.

class Store {
  constructor(key, initial, changed) {
    this.key = key;
    this.initial = initial;
    this.state = { ...initial, ...this.fromAddress() };
    this.past = [];
    this.last = null;
    this.changed = changed;
  }

  // Changes of one kind that follow each other (a slider that is dragged) are one step back.
  set(patch, kind = null) {
    const next = { ...this.state, ...patch };
    if (JSON.stringify(next) === JSON.stringify(this.state)) return;
    if (kind === null || kind !== this.last) this.past.push(this.state);
    if (this.past.length > 200) this.past.shift();
    this.last = kind;
    this.state = next;
    this.toAddress();
    this.changed();
  }

  undo() {
    if (!this.past.length) return;
    this.state = this.past.pop();
    this.last = null;
    this.toAddress();
    this.changed();
  }

  reset() { this.set(this.initial); }

  get edited() { return this.state.off.length > 0 || this.state.ratios !== null; }

  // ---- the address: #live=tokens:0.1.1.4;off:0.3,0.mlp;at:2 and further panels after "&"

  text() {
    const { tokens, counts, off, ratios, at, head, pin } = this.state, parts = [];
    if (tokens) parts.push(`tokens:${tokens.join(".")}`);
    if (counts) parts.push(`counts:${counts.join(",")}`);
    if (off.length) parts.push(`off:${off.join(",")}`);
    if (ratios) parts.push(`ratios:${ratios.join(",")}`);
    if (at !== null) parts.push(`at:${at}`);
    if (head !== null) parts.push(`head:${head}`);
    if (pin) parts.push(`pin:${pin.join(".")}`);
    return parts.join(";");
  }

  parse(text) {
    const found = {}, fields = Object.fromEntries(text.split(";").map((part) => part.split(":")));
    const integers = (list, separator) => list.split(separator).map(Number);
    const good = (list) => list.length && list.every((value) => Number.isInteger(value) && value >= 0);
    if (fields.tokens && good(integers(fields.tokens, "."))) found.tokens = integers(fields.tokens, ".");
    if (fields.pin && good(integers(fields.pin, "."))) found.pin = integers(fields.pin, ".");
    if (fields.counts && good(integers(fields.counts, ","))) found.counts = integers(fields.counts, ",");
    if (fields.off) found.off = fields.off.split(",").filter((part) => /^\d+\.(\d+|mlp)$/.test(part));
    if (fields.ratios) {
      const ratios = fields.ratios.split(",").map(Number);
      if (ratios.length === 2 && ratios.every((ratio) => ratio > 0)) found.ratios = ratios;
    }
    if (/^\d+$/.test(fields.at || "")) found.at = Number(fields.at);
    if (/^\d+\.\d+$/.test(fields.head || "")) found.head = fields.head;
    if (fields.head === "") found.head = null;
    if (/^-?\d+(,\d+)?$/.test(fields.difference || "")) found.difference = fields.difference.split(",").map(Number);
    return found;
  }

  fromAddress() {
    try {
      const mine = location.hash.slice(1).split("&").find((part) => part.startsWith(`${this.key}=`));
      return mine ? this.parse(decodeURIComponent(mine.slice(this.key.length + 1))) : {};
    } catch { return {}; }
  }

  toAddress() {
    clearTimeout(this.timer); // browsers refuse more than a hundred changes of the address in half a minute
    this.timer = setTimeout(() => {
      try {
        const others = location.hash.slice(1).split("&").filter((part) => part.includes("=") && !part.startsWith(`${this.key}=`));
        history.replaceState(null, "", `#${[...others, `${this.key}=${this.text()}`].join("&")}`);
      } catch { /* a frame without an address */ }
    }, 150);
  }
}
