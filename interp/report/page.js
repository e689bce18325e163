(() => {
  "use strict";
  const root = document.documentElement;
  const plots = [...document.querySelectorAll(".plot")];
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const drawn = new Set();
  let settings = null;
  let printing = false;

  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

  // A frame in a notebook has no storage of its own; the choice then lasts as long as the page.
  const remember = (theme) => { try { localStorage.setItem("interp-theme", theme); } catch { /* not kept */ } };
  const remembered = () => { try { return localStorage.getItem("interp-theme"); } catch { return null; } };

  function setUpTheme() {
    const asked = new URLSearchParams(location.search).get("theme") || remembered();
    if (asked === "dark" || asked === "light") root.dataset.theme = asked;
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remember(root.dataset.theme);
      applyTheme();
    });
    prefersDark.addEventListener("change", applyTheme);
    addEventListener("beforeprint", () => { printing = true; applyTheme(); plots.forEach(draw); });
    addEventListener("afterprint", () => { printing = false; applyTheme(); });
    applyTheme();
  }

  function applyTheme() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
    drawn.forEach(render);
  }

  // Figures are stored in the light colors; on a dark page each known color is exchanged for its partner.
  function themed(value) {
    if (typeof value === "string") {
      const partner = value[0] === "#" && settings.dark[value.slice(0, 7)];
      return partner ? partner + value.slice(7) : value;
    }
    if (Array.isArray(value)) return value.map(themed);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item)]));
    }
    return value;
  }

  function render(plot) {
    const figure = JSON.parse(document.getElementById(plot.dataset.source).textContent);
    figure.layout.template = settings.template;
    const { data, layout } = isDark() ? themed(figure) : figure;
    // The box around the figure has its size; on a phone a square figure gets lower as it gets narrower.
    layout.autosize = true;
    delete layout.height;
    delete layout.width;
    // A finger on a figure scrolls the page; it does not zoom the figure.
    const isTouch = matchMedia("(hover: none)").matches;
    if (isTouch) layout.dragmode = false;
    return Promise.resolve(window.Plotly.react(plot, data, layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: isTouch ? false : "hover",
      // These and no others: plotly's own list has a button that uploads the figure.
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      plotlyServerURL: "",
      toImageButtonOptions: { format: "svg", filename: plot.dataset.source.replace(/^figure-|-data$/g, "") },
    })).then(() => {
      plot.removeAllListeners("plotly_click");
      // A live panel of the page may know what was clicked: a head, or an input.
      plot.on("plotly_click", ({ points: [point] }) => {
        const id = point.id || (layout.meta && layout.meta.live ? `${layout.meta.live}:${point.x}` : "");
        if (id) document.dispatchEvent(new CustomEvent("interp-point", { detail: { id, plot } }));
      });
    });
  }

  function draw(plot) {
    if (!window.Plotly || drawn.has(plot)) return;
    drawn.add(plot);
    plot.classList.remove("waiting");
    try {
      Promise.resolve(render(plot)).catch((error) => fail(plot, error));
    } catch (error) {
      fail(plot, error);
    }
  }

  function fail(plot, error) {
    drawn.delete(plot);
    plot.classList.add("failed");
    plot.textContent = `This figure could not be drawn: ${error.message || error}`;
  }

  function giveUp(sentence) {
    const trouble = document.getElementById("trouble");
    trouble.textContent = `${sentence} Text, tables and captions are complete without the figures.`;
    trouble.hidden = false;
    plots.forEach((plot) => {
      plot.classList.add("failed");
      plot.textContent = "This figure could not be drawn.";
    });
  }

  async function unpackPlotly() {
    const packed = atob(document.getElementById("plotly").textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    if (!window.Plotly) throw new Error("plotly.js did not start");
  }

  async function setUpFigures() {
    if (!plots.length) return;
    plots.forEach((plot) => plot.classList.add("waiting"));
    settings = JSON.parse(document.getElementById("settings").textContent);
    if (typeof DecompressionStream === "undefined") {
      giveUp("This browser is too old for the figures: they need DecompressionStream (Chrome 80, Firefox 113, Safari 16.4 or newer).");
      return;
    }
    try {
      await unpackPlotly();
    } catch (error) {
      giveUp(`The figures could not be unpacked (${error.message || error}).`);
      return;
    }
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          observer.unobserve(entry.target);
          draw(entry.target);
        }
      }
    }, { rootMargin: "600px" });
    plots.forEach((plot) => observer.observe(plot));
    if (printing) plots.forEach(draw);
  }

  // Links within the page by hand: in a notebook's frame the browser would load the notebook instead.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    const target = link && document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
    if (!target) return;
    event.preventDefault();
    target.scrollIntoView();
    try { history.replaceState(null, "", link.getAttribute("href")); } catch { /* a frame without an address */ }
  });

  setUpTheme();
  setUpFigures();
})();
