"use strict";
// The page is whole without this script: it adds the theme switch, the filter, and the surface viewer.

(function theme() {
  const root = document.documentElement, button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("irr-theme"); } catch { /* a page opened from a file may have no storage */ }
  const dark = () => (chosen ? chosen === "dark" : system.matches);
  function show() {
    if (chosen) root.dataset.theme = chosen;
    button.setAttribute("aria-pressed", String(dark()));
    document.dispatchEvent(new Event("irr-theme"));
  }
  button.addEventListener("click", () => {
    chosen = dark() ? "light" : "dark";
    try { localStorage.setItem("irr-theme", chosen); } catch { /* the choice lasts as long as the page */ }
    show();
  });
  system.addEventListener("change", show);
  button.hidden = false;
  show();
})();

(function filter() {
  const bar = document.querySelector(".filters"), status = document.getElementById("shown");
  const claims = [...document.querySelectorAll(".claim")];
  bar.hidden = false;
  bar.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const verdict = button.dataset.verdict;
    for (const other of bar.children) other.setAttribute("aria-pressed", String(other === button));
    let shown = 0;
    for (const claim of claims) {
      claim.hidden = verdict !== "" && claim.dataset.verdict !== verdict;
      if (!claim.hidden) shown += 1;
    }
    for (const source of document.querySelectorAll(".source"))
      source.hidden = !source.querySelector(".claim:not([hidden])");
    status.textContent = verdict === "" ? "" : shown + " of " + claims.length + " claims shown.";
  });
  // A link to a claim shows it, whatever the filter hides.
  window.addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.hidden) { bar.firstElementChild.click(); target.scrollIntoView(); }
  });
})();

// A region that scrolls is reached by Tab and says so; one that does not is passed over.
(function regions() {
  const every = [...document.querySelectorAll(".scroll")];
  function look(region) {
    const sideways = region.scrollWidth > region.clientWidth + 1;
    if (sideways || region.scrollHeight > region.clientHeight + 1) region.tabIndex = 0;
    else region.removeAttribute("tabindex");
    const hint = region.previousElementSibling;
    if (hint && hint.classList.contains("hint")) hint.hidden = !sideways;
  }
  const watch = new ResizeObserver((entries) => entries.forEach((entry) => look(entry.target)));
  every.forEach((region) => watch.observe(region));
})();

(function surface() {
  const start = document.getElementById("show-surface");
  if (!start) return;
  const viewer = document.getElementById("viewer"), keys = document.getElementById("viewer-keys");
  const problem = document.getElementById("viewer-problem");
  const home = { theta: 0.8, phi: 1.1, far: 2.1 };
  let eye = { ...home };
  const camera = () => ({
    eye: {
      x: eye.far * Math.sin(eye.phi) * Math.cos(eye.theta),
      y: eye.far * Math.sin(eye.phi) * Math.sin(eye.theta),
      z: eye.far * Math.cos(eye.phi),
    },
    up: { x: 0, y: 0, z: 1 },
    center: { x: 0, y: 0, z: 0 },
  });
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const layout = () => {
    const axis = { color: colour("--soft"), gridcolor: colour("--line"), ticksuffix: " m" };
    return {
      margin: { l: 0, r: 0, t: 0, b: 0 }, paper_bgcolor: "rgba(0,0,0,0)", font: { color: colour("--ink") },
      scene: { aspectmode: "data", dragmode: "orbit", camera: camera(), xaxis: axis, yaxis: axis, zaxis: axis },
    };
  };
  function fail(words) { problem.textContent = words; problem.hidden = false; }

  start.addEventListener("click", () => {
    start.disabled = true;
    const script = document.createElement("script");  // allowed by its hash
    script.textContent = document.getElementById("plotly-source").textContent;
    document.head.append(script);
    if (!window.Plotly) return fail("The viewer could not be started in this browser.");
    const mesh = JSON.parse(document.getElementById("surface-data").textContent);
    viewer.hidden = keys.hidden = false;
    const trace = { type: "mesh3d", ...mesh, color: "#56B4E9", flatshading: false, hoverinfo: "skip",
      lighting: { ambient: 0.45, diffuse: 0.8, specular: 0.15, roughness: 0.7 } };
    const settings = { responsive: true, displaylogo: false, displayModeBar: false, scrollZoom: true };
    Promise.resolve(window.Plotly.newPlot(viewer, [trace], layout(), settings)).then(
      () => { start.parentElement.hidden = true; viewer.focus(); viewer.dataset.ready = "yes"; },
      (error) => fail("The surface cannot be drawn: " + error.message));
  }, { once: true });

  viewer.addEventListener("keydown", (event) => {
    const step = 0.12, now = viewer.layout.scene.camera.eye;  // where the mouse has left it
    eye.far = Math.hypot(now.x, now.y, now.z);
    eye.phi = Math.acos(now.z / eye.far);
    eye.theta = Math.atan2(now.y, now.x);
    if (event.key === "ArrowLeft") eye.theta -= step;
    else if (event.key === "ArrowRight") eye.theta += step;
    else if (event.key === "ArrowUp") eye.phi = Math.max(0.05, eye.phi - step);
    else if (event.key === "ArrowDown") eye.phi = Math.min(Math.PI - 0.05, eye.phi + step);
    else if (event.key === "+" || event.key === "=") eye.far = Math.max(0.4, eye.far * 0.9);
    else if (event.key === "-") eye.far = Math.min(8, eye.far / 0.9);
    else if (event.key === "Home") eye = { ...home };
    else return;
    event.preventDefault();
    window.Plotly.relayout(viewer, { "scene.camera": camera() });
  });
  document.addEventListener("irr-theme", () => { if (viewer.dataset.ready) window.Plotly.relayout(viewer, layout()); });
})();
