// A page that was opened as a file may start no worker, and the theme's search is one. There its script runs in a hidden
// frame instead; over HTTP all stays as it is. The search looks for the name `IFrameWorker` in the page above its own.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((done) => {
        frame.onload = () => {
          const inside = frame.contentWindow;
          const script = inside.document.createElement("script");
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          script.src = url;
          script.onload = () => done(inside);
          inside.document.body.append(script);
        };
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
