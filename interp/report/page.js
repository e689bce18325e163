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

  // ------------------------------------------------------------ tables

  function element(tag, attributes, text) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  }

  // Missing values last, numbers by size, the rest as words.
  function compare(a, b, sign) {
    if (a === b) return 0;
    if (a === "\u2013" || b === "\u2013") return a === "\u2013" ? 1 : -1;
    const [x, y] = [a, b].map((text) => Number(text.replace(/,/g, "").replace("\u2212", "-")));
    return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y);
  }

  function setUpTable(figure) {
    const table = figure.querySelector("table"), body = table.tBodies[0], rest = table.tBodies[1];
    const heads = [...table.tHead.rows[0].cells], tools = element("div", { class: "tools" }, "");
    const note = figure.querySelector(".note"), all = body.rows.length + (rest ? rest.rows.length : 0);
    let more = null;
    const showAll = () => {
      if (!rest || !rest.isConnected) return;
      body.append(...rest.rows);
      rest.remove();
      more.remove();
      if (note) note.textContent = note.textContent.replace(/^The first [0-9]+/, `The first ${all}`);
      if (note && note.textContent === `The first ${all} of ${all} rows.`) note.remove();
      cues();
    };
    if (rest) {
      more = element("button", { type: "button" }, `Show ${all} rows`);
      more.addEventListener("click", showAll);
      tools.append(more);
    }
    const save = element("button", { type: "button" }, "Download CSV");
    save.addEventListener("click", () => {
      const text = JSON.parse(document.getElementById(`${figure.id}-csv`).textContent);
      const link = element("a", { download: `${figure.id.replace(/^table-/, "")}.csv` }, "");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    tools.append(save);
    figure.append(tools);
    if (all < 2) return;
    heads.forEach((head, column) => {
      const button = element("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        showAll();
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const text = (row) => row.cells[column].textContent;
        body.append(...[...body.rows].sort((a, b) => compare(text(a), text(b), down ? -1 : 1)));
      });
    });
  }

  // ------------------------------------------------------------ what is cut at the right says so

  const boxes = [...document.querySelectorAll("figure > .scroll")];

  function cues() {
    for (const box of boxes) {
      box.parentElement.classList.toggle("is-cut", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
    }
  }

  function setUpCues() {
    for (const box of boxes) {
      box.after(element("p", { class: "cue", "aria-hidden": "true" }, "Scroll sideways for more \u2192"));
      box.addEventListener("scroll", cues, { passive: true });
    }
    addEventListener("resize", cues);
    cues();
  }

  // Links within the page by hand: in a notebook's frame the browser would load the notebook instead.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    const target = link && document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
    if (!target) return;
    event.preventDefault();
    target.scrollIntoView();
    try { history.replaceState(null, "", link.getAttribute("href")); } catch { /* a frame without an address */ }
    if (link.className === "anchor" && navigator.clipboard) navigator.clipboard.writeText(location.href).catch(() => {});
  });

  setUpTheme();
  document.querySelectorAll("figure.table").forEach(setUpTable);
  setUpCues();
  setUpFigures();
})();
