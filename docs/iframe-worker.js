// Search without a server: a page that is opened from disk may start no Worker, so the search runs in a hidden frame.
// The theme's offline plugin asks for such a shim by this name; with this one the site loads nothing from elsewhere.

window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inside = this.frame.contentWindow;
    inside.document.open();
    inside.document.write(`<html><body><script>
      postMessage = (data) => parent.postMessage(data, "*");
      importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((loaded) => {
        const script = document.createElement("script");
        Object.assign(script, { src: url, onload: loaded });
        document.body.appendChild(script);
      })), Promise.resolve());
    <\/script><script src="${url}"><\/script></body></html>`);
    inside.document.close();
    this.ready = new Promise((loaded) => { inside.onload = loaded; });
    window.addEventListener("message", (event) => {
      if (event.source !== inside) return;
      const message = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(message);
      if (this.onmessage) this.onmessage(message);
    });
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() { this.frame.remove(); }
};

if (location.protocol === "file:") window.Worker = window.IFrameWorker;
