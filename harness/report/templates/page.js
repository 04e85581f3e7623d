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

// The fused surface: triangles painted from the farthest to the nearest, which for ten thousand is quick enough.
(function surface() {
  const start = document.getElementById("show-surface");
  if (!start) return;
  const viewer = document.getElementById("viewer"), keys = document.getElementById("viewer-keys");
  const home = { theta: 0.8, phi: 1.1, far: 2.6 };  // angles, and the distance in radii of the mesh
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  let eye = { ...home }, mesh = null, asked = false;

  function load() {
    const { vertices, triangles } = JSON.parse(document.getElementById("surface-data").textContent);
    const number = vertices.length / 3, middle = [0, 1, 2].map((axis) => {
      let low = Infinity, high = -Infinity;
      for (let i = axis; i < vertices.length; i += 3) { low = Math.min(low, vertices[i]); high = Math.max(high, vertices[i]); }
      return (low + high) / 2;
    });
    const points = Float32Array.from(vertices, (value, i) => value - middle[i % 3]);
    let radius = 1;
    for (let i = 0; i < points.length; i += 3) radius = Math.max(radius, Math.hypot(points[i], points[i + 1], points[i + 2]));
    const faces = Uint32Array.from(triangles), many = faces.length / 3;
    return { points: points.map((value) => value / radius), faces, seen: new Float32Array(3 * number),
      depth: new Float32Array(many), order: Uint32Array.from({ length: many }, (_, i) => i) };
  }

  function paint() {
    asked = false;
    const scale = window.devicePixelRatio || 1, wide = viewer.clientWidth, high = viewer.clientHeight;
    canvas.width = Math.round(wide * scale); canvas.height = Math.round(high * scale);
    pen.setTransform(scale, 0, 0, scale, wide / 2 * scale, high / 2 * scale);
    pen.lineWidth = 0.6;  // closes the seams between neighbours
    const { points, faces, seen, depth, order } = mesh, lens = 1.1 * Math.min(wide, high);
    const [st, ct, sp, cp] = [Math.sin(eye.theta), Math.cos(eye.theta), Math.sin(eye.phi), Math.cos(eye.phi)];
    for (let i = 0; i < points.length; i += 3) {
      const [x, y, z] = [points[i], points[i + 1], points[i + 2]];
      seen[i] = -st * x + ct * y;                         // to the right
      seen[i + 1] = -cp * ct * x - cp * st * y + sp * z;  // up
      seen[i + 2] = eye.far - (sp * ct * x + sp * st * y + cp * z);  // away from the eye
    }
    for (let f = 0; f < order.length; f += 1)
      depth[f] = seen[3 * faces[3 * f] + 2] + seen[3 * faces[3 * f + 1] + 2] + seen[3 * faces[3 * f + 2] + 2];
    order.sort((a, b) => depth[b] - depth[a]);
    for (const f of order) {
      const [a, b, c] = [3 * faces[3 * f], 3 * faces[3 * f + 1], 3 * faces[3 * f + 2]];
      if (Math.min(seen[a + 2], seen[b + 2], seen[c + 2]) < 0.05) continue;  // behind the eye
      const [ux, uy, uz] = [seen[b] - seen[a], seen[b + 1] - seen[a + 1], seen[b + 2] - seen[a + 2]];
      const [vx, vy, vz] = [seen[c] - seen[a], seen[c + 1] - seen[a + 1], seen[c + 2] - seen[a + 2]];
      const [nx, ny, nz] = [uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx];
      const light = Math.abs(0.3 * nx + 0.5 * ny - 0.81 * nz) / (Math.hypot(nx, ny, nz) || 1);  // both sides are lit
      const tone = 0.35 + 0.65 * light;
      pen.fillStyle = pen.strokeStyle = `rgb(${86 * tone | 0} ${180 * tone | 0} ${233 * tone | 0})`;
      pen.beginPath();
      for (const p of [a, b, c]) pen.lineTo(lens * seen[p] / seen[p + 2], -lens * seen[p + 1] / seen[p + 2]);
      pen.closePath(); pen.fill(); pen.stroke();
    }
    Object.assign(viewer.dataset, { theta: eye.theta, phi: eye.phi, far: eye.far, ready: "yes" });
  }
  function ask() { if (mesh && !asked) { asked = true; requestAnimationFrame(paint); } }
  function turn(theta, phi, nearer = 1) {
    eye = { theta: eye.theta + theta, phi: Math.min(Math.PI - 0.05, Math.max(0.05, eye.phi + phi)),
      far: Math.min(8, Math.max(1.2, eye.far * nearer)) };
    ask();
  }

  start.addEventListener("click", () => {
    mesh = load();
    start.parentElement.hidden = true;
    viewer.hidden = keys.hidden = false;
    viewer.append(canvas);
    viewer.focus();
    new ResizeObserver(ask).observe(viewer);
  }, { once: true });
  viewer.addEventListener("keydown", (event) => {
    const step = 0.12;
    if (event.key === "ArrowLeft") turn(-step, 0);
    else if (event.key === "ArrowRight") turn(step, 0);
    else if (event.key === "ArrowUp") turn(0, -step);
    else if (event.key === "ArrowDown") turn(0, step);
    else if (event.key === "+" || event.key === "=") turn(0, 0, 0.9);
    else if (event.key === "-") turn(0, 0, 1 / 0.9);
    else if (event.key === "Home") { eye = { ...home }; ask(); }
    else return;
    event.preventDefault();
  });
  viewer.addEventListener("pointerdown", (event) => viewer.setPointerCapture(event.pointerId));
  viewer.addEventListener("pointermove", (event) => {
    if (event.buttons) turn(-event.movementX * 0.01, -event.movementY * 0.01);
  });
  viewer.addEventListener("wheel", (event) => { event.preventDefault(); turn(0, 0, Math.exp(event.deltaY * 0.001)); });
})();
