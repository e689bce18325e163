// Start every live panel of the page; if one fails, the others still start.

const panels = [];
if (typeof document !== "undefined") {
  for (const section of document.querySelectorAll("section.live[data-self-test]")) {
    const data = document.getElementById(`${section.id}-data`);
    if (!data) continue;
    try {
      const panel = makePanel(section, JSON.parse(data.textContent));
      if (panel) panels.push(panel);
    } catch (error) {
      section.dataset.selfTest = "off";
      section.querySelector(".live-body").replaceChildren(el("p", { class: "warning" }, `The live panel could not start: ${error.message}`));
    }
  }
  const again = () => panels.forEach((panel) => panel.refresh());
  new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("beforeprint", () => setTimeout(again));
}

// A click on a point of a figure: the panel of its model loads the head and the input, and says so.
if (typeof document !== "undefined") {
  document.addEventListener("interp-point", ({ detail }) => {
    const panel = panels.find(({ key }) => key === detail.panel);
    if (panel) detail.said = panel.point(detail.state);
  });
}
