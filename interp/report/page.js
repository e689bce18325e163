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
    addEventListener("beforeprint", () => {
      printing = true;
      document.querySelectorAll("main details").forEach((one) => { one.open = true; });
      applyTheme();
      plots.forEach(draw);
    });
    addEventListener("afterprint", () => { printing = false; applyTheme(); });
    applyTheme();
  }

  function applyTheme() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
    if (printing) drawn.forEach(render);
    else redraw([...drawn]);
  }

  const hex = (channels) => "#" + channels.map((one) => Number(one).toString(16).padStart(2, "0").toUpperCase()).join("");

  // Figures are stored in the light colors; on a dark page each known color is exchanged for its partner.
  function themed(value) {
    if (typeof value === "string") {
      if (value[0] === "#") return settings.dark[value] || value;
      const faded = /^rgba\((\d+), (\d+), (\d+), ([\d.]+)\)$/.exec(value);
      const partner = faded && settings.dark[hex(faded.slice(1, 4))];
      return partner ? `rgba(${[1, 3, 5].map((i) => parseInt(partner.slice(i, i + 2), 16)).join(", ")}, ${faded[4]})` : value;
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
    mark(figure, holderOf(plot).dataset.head);
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
      staticPlot: Boolean(plot.closest(".thumbnail")),
      // These and no others: plotly's own list has a button that uploads the figure.
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      plotlyServerURL: "",
      toImageButtonOptions: { format: "svg", filename: plot.dataset.source.replace(/^figure-|-data$/g, "") },
    })).then(() => {
      plot.removeAllListeners("plotly_click");
      plot.on("plotly_click", ({ points: [point] }) => clicked(plot, point));
      plot.classList.toggle("aimed", data.some(({ meta, ids }) => meta || (ids || []).some((id) => id.includes(":"))));
    });
  }

  // ------------------------------------------------------------ what a point stands for: see interp/report/aim.py

  // The live panel before a plot stores the marked head; without a panel, the page does.
  function holderOf(plot) {
    const before = (panel) => panel.compareDocumentPosition(plot) & Node.DOCUMENT_POSITION_FOLLOWING;
    return [...document.querySelectorAll("section.live")].filter(before).pop() || document.body;
  }

  // "head 3", "3 successful" and "0.3" are all head 3 of layer 0.
  function headIn(label) {
    const found = /^(?:head )?(?:([0-9]+)\.)?([0-9]+)/.exec(label === undefined ? "" : String(label));
    return found && `${found[1] || 0}.${found[2]}`;
  }

  function clicked(plot, point) {
    const { meta = {} } = point.data, holder = holderOf(plot), id = String(point.id || "");
    const head = headIn(meta.head || (meta.heads && point[meta.heads]));
    const each = meta.inputs && point.customdata ? `${meta.inputs}:${point.customdata}` : "";
    const input = meta.input || each || (id.includes(":") ? id : "");
    const chosen = !input && holder.dataset.head === head ? "" : head; // a second click takes the mark away
    const state = [head ? `head:${chosen}` : "", input].filter(Boolean).join(";");
    if (!state) return;
    const detail = { state, panel: holder.id, said: "" };
    document.dispatchEvent(new CustomEvent("interp-point", { detail }));
    if (head) setHead(holder, chosen);
    say(detail.said, holder);
  }

  function setHead(holder, head) {
    if ((holder.dataset.head || "") === head) return;
    holder.dataset.head = head;
    remark(holder);
  }

  // Redraw the figures on the screen first, the others later.
  function redraw(some) {
    const seen = (plot) => { const box = plot.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; };
    some.filter(seen).forEach(render);
    const rest = some.filter((plot) => !seen(plot));
    const next = () => { if (rest.length) { render(rest.shift()); setTimeout(next, 20); } };
    setTimeout(next, 50);
  }

  const remark = (holder) => redraw([...drawn].filter((plot) => holderOf(plot) === holder));

  document.addEventListener("interp-head", ({ detail }) => remark(detail));

  // Mark a head in a figure: fade the traces of other heads, select its dots, frame its rows.
  function mark({ data, layout }, head) {
    const named = data.map(({ meta }) => meta && meta.head && headIn(meta.head));
    if (!head) return;
    data.forEach((trace, i) => {
      const { heads } = trace.meta || {};
      if (named[i] && named.includes(head) && named[i] !== head) trace.opacity = 0.2;
      if (heads === "id") trace.selectedpoints = trace.ids.flatMap((id, at) => (headIn(id) === head ? [at] : []));
      else if (heads) frame(trace, heads, data, layout, head);
    });
  }

  function frame(trace, letter, data, layout, head) {
    const axis = trace[`${letter}axis`] || letter, other = letter === "x" ? "y" : "x";
    const list = (one) => (Array.isArray(one[letter]) && (one[`${letter}axis`] || letter) === axis ? one[letter] : []);
    const labels = (layout[axis.replace(letter, `${letter}axis`)] || {}).categoryarray || [...new Set(data.flatMap(list))];
    const place = labels.length ? labels.findIndex((label) => headIn(label) === head) : Number(head.slice(2));
    if (place < 0) return;
    const cross = `${trace[`${other}axis`] || other} domain`;
    layout.shapes = [...(layout.shapes || []), {
      type: "rect", line: { color: "#1B1F24", width: 2 }, [`${letter}ref`]: axis, [`${letter}0`]: place - 0.5,
      [`${letter}1`]: place + 0.5, [`${other}ref`]: cross, [`${other}0`]: 0, [`${other}1`]: 1,
    }];
  }

  // A message at the bottom of the window, in case the panel is out of sight.
  let quiet = null;
  const told = element("p", { class: "note-box told", role: "status" }, "");
  told.hidden = true;
  document.body.append(told);
  function say(words, holder) {
    told.hidden = true;
    if (!words) return;
    told.textContent = `${words} `;
    if (holder.id) told.append(element("a", { href: `#${holder.id}` }, "Show the live panel"));
    told.hidden = false;
    clearTimeout(quiet);
    quiet = setTimeout(() => { told.hidden = true; }, 6000);
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
    // Figures far below are drawn when nothing else is to do, so that a picture of the page has them; folded ones wait.
    const whenIdle = window.requestIdleCallback || ((then) => setTimeout(then, 100));
    const rest = [...plots];
    const next = () => {
      const plot = rest.shift();
      if (plot && plot.offsetParent) draw(plot);
      if (rest.length) whenIdle(next);
    };
    whenIdle(next);
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

  // ------------------------------------------------------------ hints to scroll sideways

  const boxes = [...document.querySelectorAll("figure > .scroll")];

  function cues() {
    for (const box of boxes) {
      box.parentElement.classList.toggle("is-long", box.scrollWidth > box.clientWidth + 2);
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

  // What a link leads to may be folded.
  function unfold(target) {
    for (let at = target.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  }

  // Links within the page by hand: in a notebook's frame the browser would load the notebook instead.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    const target = link && document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
    if (!target) return;
    event.preventDefault();
    unfold(target);
    target.scrollIntoView();
    try { history.replaceState(null, "", link.getAttribute("href")); } catch { /* a frame without an address */ }
    if (link.className === "anchor" && navigator.clipboard) navigator.clipboard.writeText(location.href).catch(() => {});
  });

  const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named) unfold(named);
  setUpTheme();
  document.querySelectorAll("figure.table").forEach(setUpTable);
  setUpCues();
  setUpFigures();
})();
