// Draws the document that the Python side made: everything here is about pixels, nothing about meaning.
"use strict";

const page = JSON.parse(document.getElementById("page").textContent);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (name) => (!name || name === "text" ? css("--text") : name);
const tip = make("div", { id: "tip", hidden: true });
const hidden = new Set(); // "panel/series" that a click in a legend has switched off
let panels = []; // the panels on the page: {element, body, given}
let shown = ""; // the structure of the page: a refresh with the same one only fills panels anew
let shift = 0; // of the time zone, in milliseconds

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// ---- the tip under the pointer

function showTip(event, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const beside = event.clientX + 16 + width < innerWidth ? event.clientX + 16 : event.clientX - 16 - width;
  tip.style.left = `${Math.max(4, beside)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - height - 4))}px`;
}

function hideTip() {
  tip.hidden = true;
  for (const line of document.querySelectorAll(".crosshair")) line.hidden = true;
}

function clock(milliseconds) {
  return new Date(milliseconds + shift).toISOString().slice(0, 19).replace("T", " ");
}

// ---- the page

function bar(given) {
  const names = Object.entries(page.pages);
  const links = names.map(([name, title]) =>
    make("a", { href: address(name), "aria-current": name === page.name ? "page" : undefined }, title));
  return make("div", { class: "bar" },
    make("h1", {}, given.title),
    names.length > 1 ? make("nav", {}, ...links) : null,
    ...given.choices.map(choice),
    make("span", { class: "right" }, page.refresh ? range() : null, make("span", { class: "when" })),
    make("span", { class: "note" }, "Preview of the Grafana dashboard, drawn by vllm-slo from live queries; not Grafana"),
    make("span", { class: "note trouble" }));
}

// A served page keeps its choices and its time range in its address, as Grafana does; a written one has none to give.
function address(name, search = location.search) {
  return page.link.replace("*", name) + (page.refresh ? search : "");
}

function choose(change) {
  const search = new URLSearchParams(location.search);
  change(search);
  location.search = search;
}

function choice(given) {
  const label = `${given.label}: `;
  if (!page.refresh || given.options.length < 2) return make("span", { class: "chosen" }, label, make("b", {}, given.words));
  const others = given.values.length > 1 ? [[given.words, ""]] : [];
  const options = [...others, ...given.options].map(([text, value]) =>
    make("option", { value, selected: value === (others.length ? "" : given.values[0]) }, text));
  return make("label", { class: "chosen" }, label, make("select", {
    onchange: (event) => choose((search) => search.set(`var-${given.name}`, event.target.value)) }, ...options));
}

function range() {
  const from = new URLSearchParams(location.search).get("from");
  const usual = ["5m", "15m", "30m", "1h", "3h", "6h", "12h", "1d", "2d", "7d"].map((time) => [`last ${time}`, `now-${time}`]);
  const options = usual.some(([, value]) => value === from) ? usual : [[from ?? "as started", from ?? ""], ...usual];
  return make("select", { "aria-label": "Time range", onchange: (event) => choose((search) => {
    search.set("from", event.target.value);
    search.set("to", "now");
  }) }, ...options.map(([text, value]) => make("option", { value, selected: value === from }, text)));
}

function news(given) {
  document.querySelector(".bar .when").textContent = `${clock(given.from)} to ${clock(given.to)} ${given.zone}`;
  document.querySelector(".bar .trouble").textContent = given.errors.join("; ");
}

function section(given) {
  const top = Math.min(...given.panels.map((panel) => panel.place[1]));
  const grid = make("div", { class: "grid" }, ...given.panels.map((panel) => frame(panel, top)));
  if (!given.title) return make("section", { class: "section" }, grid);
  const element = make("section", { class: given.closed ? "section closed" : "section" },
    make("button", { onclick: () => { element.classList.toggle("closed"); fillAll(); } }, given.title), grid);
  return element;
}

function frame(given, top) {
  const [x, y, width, height] = given.place;
  const body = make("div", { class: "body" });
  const info = make("button", { class: "info", "aria-label": given.description,
    onmousemove: (event) => showTip(event, given.description), onmouseleave: hideTip }, "i");
  const element = make("article", { class: "panel", "data-type": given.type,
    style: { gridColumn: `${x + 1} / span ${width}`, gridRow: `${y - top + 1} / span ${height}` } },
    given.title || given.description
      ? make("header", {}, make("h2", { title: given.title }, given.title), given.description ? info : null) : null,
    make("div", { class: "errors trouble" }), body);
  panels.push({ element, body, given, number: panels.length });
  return element;
}

async function draw(given) {
  shift = given.shift;
  const structure = JSON.stringify([given.title, given.choices, given.sections.map((each) =>
    [each.title, each.panels.map((panel) => [panel.kind, panel.title, panel.place])])]);
  if (structure !== shown) {
    panels = [];
    document.body.replaceChildren(bar(given), make("main", {}, ...given.sections.map(section)), tip);
    shown = structure;
  }
  given.sections.flatMap((each) => each.panels).forEach((panel, number) => { panels[number].given = panel; });
  page.marks = given.marks;
  page.span = [given.from, given.to];
  news(given);
  await fillAll();
  if (!document.documentElement.dataset.drawn) spotlight();
  document.documentElement.dataset.drawn = `${Number(document.documentElement.dataset.drawn || 0) + 1}`;
}

// A link to one panel, as alerts have them, leads to its place among the others.
function spotlight() {
  const id = new URLSearchParams(location.search).get("viewPanel")?.replace("panel-", "");
  const element = panels.find((panel) => `${panel.given.id}` === id)?.element;
  if (!element) return;
  element.closest(".section").classList.remove("closed");
  element.classList.add("spotlight");
  fillAll().then(() => element.scrollIntoView({ block: "center" }));
}

function fillAll() {
  return Promise.all(panels.map(fill));
}

async function fill(panel) {
  const { element, body, given } = panel;
  if (!element.offsetParent) return; // in a closed row
  element.querySelector(".errors").replaceChildren(...given.errors.map((text) => make("div", {}, text)));
  if (given.empty) {
    body.querySelectorAll(".plot").forEach((plot) => Plotly.purge(plot));
    body.className = "body";
    body.replaceChildren(make("div", { class: "empty" }, given.errors.length ? "" : given.empty));
    element.dataset.drawn = "0";
    return;
  }
  element.dataset.drawn = await DRAW[given.kind](panel);
}

// ---- one function for each kind of panel; each returns how many things it has drawn

const DRAW = {
  async graph(panel) {
    const { body, given, number } = panel;
    body.className = `body graph ${given.legend?.place ?? ""}`;
    body.querySelector(".legend")?.remove();
    if (given.legend) body.append(legend(panel));
    await plotted(panel, given.series.map((series) => trace(given, series, !hidden.has(`${number}/${series.name}`))));
    return given.series.length;
  },

  async heatmap(panel) {
    const { body, given } = panel;
    body.className = "body graph";
    const scale = { title: { text: "" }, orientation: "h", thickness: 8, len: 0.4, x: 0.96, xanchor: "right", y: -0.12, yanchor: "top",
      tickvals: [0, 0.999], ticktext: ["0", given.greatest], outlinewidth: 0, ypad: 0, ticklabeloverflow: "allow" };
    await plotted(panel, [{ type: "heatmap", x0: given.start + shift, dx: given.step, z: given.rows, zmin: 0, zmax: 1, hoverinfo: "none",
      ygap: 1, colorscale: SCHEMES[given.scheme] ?? given.scheme, reversescale: given.reverse, colorbar: scale }]);
    return given.rows.length;
  },

  stat({ body, given }) {
    const longest = (part) => Math.max(3, ...given.items.map((item) => item[part].length));
    const [widest, longName] = [longest("text"), longest("name")];
    const { width, height } = body.getBoundingClientRect();
    const fits = (columns) => {
      const [across, down] = [width / columns, height / Math.ceil(given.items.length / columns)];
      const wide = across > 3 * down;
      const room = across - 24;
      return { columns, wide, size: wide ? Math.min(down * 0.6, room / (0.62 * widest + 0.4 * longName)) : Math.min(down * 0.4, room / (0.62 * widest)) };
    };
    const counts = { horizontal: [1], vertical: [given.items.length] }[given.orientation] ?? given.items.map((_, at) => at + 1);
    const best = counts.map(fits).reduce((one, other) => (other.size > one.size ? other : one));
    const large = Math.max(10, Math.min(56, best.size));
    body.className = "body figures";
    body.style.gridTemplateColumns = `repeat(${best.columns}, minmax(0, 1fr))`;
    body.replaceChildren(...given.items.map((item) => {
      const [front, back] = given.fill
        ? [item.ink || css("--ground"), colour(item.colour)] : [given.plain ? css("--text") : colour(item.colour), ""];
      const name = item.name ? make("span", { title: item.name,
        style: { color: given.fill ? front : "", fontSize: `${Math.max(11, Math.min(18, large * 0.5))}px` } }, item.name) : null;
      return make("div", { class: best.wide ? "figure wide" : "figure", style: { background: back } }, name,
        make("b", { style: { color: front, fontSize: `${large}px` } }, item.text),
        item.line.length > 1 ? sparkline(item.line, front) : null);
    }));
    return given.items.length;
  },

  bars({ body, given }) {
    body.className = given.orientation === "vertical" ? "body bars upright" : "body bars";
    const upright = given.orientation === "vertical";
    const parts = given.items.map((item) => {
      const part = { [upright ? "height" : "width"]: `${100 * item.share}%`, background: colour(item.colour) };
      return [make("span", { class: "name", title: item.name }, item.name), make("div", { class: "track" }, make("i", { style: part })),
        make("span", { class: "value", style: { color: colour(item.colour) } }, item.text)];
    });
    body.replaceChildren(...(upright ? parts.map(([name, track, value]) => make("div", {}, value, track, name)) : parts.flat()));
    return given.items.length;
  },

  table({ body, given }) {
    body.className = "body table";
    const rows = make("tbody");
    const order = { at: -1, down: false };
    const fillRows = (cells) => rows.replaceChildren(...cells.map((row) =>
      make("tr", {}, ...row.map((cell, at) => tableCell(cell, given.columns[at])))));
    const sort = (at) => {
      order.down = order.at === at && !order.down;
      order.at = at;
      const sign = order.down ? -1 : 1;
      fillRows([...given.rows].sort(({ [at]: { key: a } }, { [at]: { key: b } }) =>
        a === null ? 1 : b === null ? -1 : sign * (typeof a === "number" ? a - b : String(a).localeCompare(b))));
    };
    fillRows(given.rows);
    const heads = given.columns.map((column, at) => make("th", { onclick: () => sort(at),
      style: { textAlign: column.align, width: column.width ? `${column.width}px` : "" } }, column.title));
    body.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), rows),
      make("div", { class: "more" }, given.note));
    return given.rows.length;
  },

  text({ body, given }) {
    body.className = "body text";
    body.innerHTML = given.html;
    return body.textContent.length;
  },

  unknown({ body, given }) {
    body.replaceChildren(make("div", { class: "empty" }, `A panel of type ${given.type}: only Grafana draws it`));
    return 1;
  },
};

function tableCell(cell, column) {
  const style = { textAlign: column.align };
  if (column.kind === "color-background") Object.assign(style, { background: cell.colour, color: cell.ink });
  else if (cell.colour) style.color = colour(cell.colour);
  const part = { width: `${100 * (cell.share ?? 0)}%`, background: colour(cell.colour) };
  const track = "share" in cell ? make("span", { class: "track" }, make("i", { style: part })) : null;
  return make("td", { style }, track, linked(cell));
}

// Links to dashboards that are among the pages; others lead to where nobody may have a Grafana.
function linked({ text, link }) {
  const [, uid, search] = /^\/d\/([^/?]+)[^?]*(\?.*)?$/.exec(link ?? "") ?? [];
  const name = page.uids[uid];
  const asked = new URLSearchParams(search);
  for (const end of ["from", "to"]) {
    const moment = new URLSearchParams(location.search).get(end);
    if (moment) asked.set(end, moment);
  }
  return name ? make("a", { href: address(name, `?${asked}`) }, text) : text;
}

function sparkline(values, stroke) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const y = (value) => (high > low ? 38 - (36 * (value - low)) / (high - low) : 38);
  const points = values.map((value, at) => (value === null ? null : `${(100 * at) / (values.length - 1)},${y(value)}`));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 40");
  svg.setAttribute("preserveAspectRatio", "none");
  const line = svg.appendChild(document.createElementNS(svg.namespaceURI, "polyline"));
  const looks = { fill: "none", stroke, "vector-effect": "non-scaling-stroke", points: points.filter(Boolean).join(" ") };
  for (const [name, value] of Object.entries(looks)) line.setAttribute(name, value);
  return svg;
}

// ---- graphs

const MOST_ROWS = 25; // under the pointer; more do not fit
const SCHEMES = { Oranges: [[0, "#3b1f0b"], [1, "#fdae6b"]], Turbo: "Jet", Spectral: "Portland", Plasma: "Electric" };

function trace(given, series, visible) {
  const common = { name: series.name, x0: given.start + shift, dx: given.step, y: series.y, hoverinfo: "none", visible,
    yaxis: series.axis ? "y2" : "y", marker: { color: colour(series.colour), size: 4 } };
  if (series.bars) return { ...common, type: "bar" };
  return { ...common, type: "scatter", mode: series.points ? (series.width ? "lines+markers" : "markers") : "lines",
    line: { color: colour(series.colour), width: series.width, dash: series.dash ? "dash" : "solid", shape: series.steps ? "hv" : "linear" },
    connectgaps: series.join, stackgroup: series.stack || undefined,
    fill: series.stack ? undefined : series.fill ? "tozeroy" : "none", fillcolor: faded(colour(series.colour), series.fill) };
}

function faded(code, share) {
  return /^#\w{6}$/.test(code) ? code + Math.round(255 * share).toString(16).padStart(2, "0") : code;
}

// What can be pointed at where no line is near.
function events(given) {
  return { type: "scatter", mode: "markers", hoverinfo: "none", cliponaxis: false,
    x: page.marks.map((mark) => Math.max(mark.at, page.span[0]) + shift), y: page.marks.map(() => given.axes[0].range[0]),
    marker: { symbol: "triangle-up", size: page.marks.map((mark) => (mark.until ? 0 : 9)), color: page.marks.map((mark) => mark.colour) } };
}

// What happened at a moment, or within a few pixels of it.
function marksAt(moment) {
  const near = (page.span[1] - page.span[0]) / 150;
  return page.marks.filter((mark) => mark.at - near <= moment && moment <= (mark.until ?? mark.at) + near);
}

function layout(given, width) {
  const axis = (one) => ({ range: [...one.range], tickvals: one.at, ticktext: one.text, title: { text: one.title }, side: one.side,
    fixedrange: true, zeroline: false, gridcolor: css("--line"), automargin: true, ticklabelstandoff: 4 });
  const [left, right] = given.axes;
  const hours = (page.span[1] - page.span[0]) / 3600e3;
  const limits = given.limits.flatMap((limit) => [
    ...(limit.line ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: limit.y, y1: limit.y,
      line: { color: limit.colour, width: 1.5, dash: limit.dash ? "dash" : "solid" } }] : []),
    ...(limit.area ? [{ type: "rect", xref: "paper", x0: 0, x1: 1, y0: limit.y, y1: limit.to, fillcolor: limit.colour, opacity: 0.12,
      line: { width: 0 }, layer: "below" }] : [])]);
  const marks = page.marks.flatMap((mark) => (mark.until
    ? [[1, 0.06], [0.02, 0.8]].map(([high, opacity]) => ({ type: "rect", yref: "paper", y0: 0, y1: high, x0: mark.at + shift,
      x1: mark.until + shift, fillcolor: mark.colour, opacity, line: { width: 0 } }))
    : [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: mark.at + shift, x1: mark.at + shift,
      line: { color: mark.colour, width: 1, dash: "dash" } }]));
  return { margin: { l: 8, r: 8, t: 8, b: 22 }, paper_bgcolor: "transparent", plot_bgcolor: "transparent", showlegend: false,
    font: { color: css("--faint"), size: 11, family: "Inter, system-ui, Helvetica, Arial, sans-serif" },
    hovermode: "x", dragmode: "zoom", barmode: "stack", uirevision: "kept", shapes: [...limits, ...marks],
    xaxis: { type: "date", range: [page.span[0] + shift, page.span[1] + shift], gridcolor: css("--line"), tickangle: 0,
      nticks: Math.max(2, Math.floor(width / 75)), tickformat: hours <= 0.2 ? "%H:%M:%S" : hours <= 24 ? "%H:%M" : hours <= 240 ? "%m/%d %H:%M" : "%m/%d" },
    yaxis: axis(left), ...(right ? { yaxis2: { ...axis(right), overlaying: "y", showgrid: false } } : {}) };
}

async function plotted(panel, traces) {
  const { body, given } = panel;
  let plot = body.querySelector(".plot");
  if (!plot) {
    plot = make("div", { class: "plot" });
    body.querySelector(".empty")?.remove();
    body.prepend(plot);
  }
  await Plotly.react(plot, [...traces, events(given)], layout(given, plot.clientWidth), { displayModeBar: false });
  if (!plot.querySelector(".crosshair")) {
    plot.append(make("div", { class: "crosshair", hidden: true }));
    plot.on("plotly_hover", (hover) => hovered(panel, hover));
    plot.on("plotly_unhover", hideTip);
  }
}

function hovered({ given }, { points, event }) {
  if (given.rows) {
    const [cell] = points.filter((point) => point.curveNumber === 0);
    if (!cell) return;
    const [row, column] = cell.pointIndex;
    crosshair(given.start + column * given.step);
    showTip(event, make("div", { class: "time" }, clock(given.start + column * given.step)),
      make("table", {}, make("tr", {}, make("td", {}, given.names[row]), make("td", {}, given.text[row][column]))));
    return;
  }
  const of = points.filter((point) => point.curveNumber < given.series.length);
  const at = of.length ? given.start + of[0].pointIndex * given.step : page.marks[points[0].pointIndex].at;
  const value = (point) => given.series[point.curveNumber].y[point.pointIndex];
  if (given.order !== "none") of.sort((a, b) => (given.order === "desc" ? value(b) - value(a) : value(a) - value(b)));
  const rows = of.slice(0, MOST_ROWS).map((point) => {
    const series = given.series[point.curveNumber];
    return make("tr", {}, make("td", {}, key(series), series.name), make("td", {}, series.text[point.pointIndex]));
  });
  crosshair(at);
  showTip(event, make("div", { class: "time" }, clock(at)), make("table", {}, ...rows),
    of.length > MOST_ROWS ? make("div", { class: "time" }, `and ${of.length - MOST_ROWS} more`) : "",
    ...marksAt(at).map((mark) => make("div", {}, key(mark), `${clock(mark.at)} ${mark.title} ${mark.text}`)));
}

function crosshair(at) {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const axis = plot._fullLayout.xaxis;
    const line = plot.querySelector(".crosshair");
    const [from, to] = axis.range.map((end) => axis.r2l(end));
    line.hidden = at + shift < from || at + shift > to;
    line.style.left = `${axis._offset + axis.l2p(at + shift)}px`;
  }
}

function key(one) {
  return make("i", { class: "key", style: { background: colour(one.colour) } });
}

function legend(panel) {
  const { given, number } = panel;
  const entry = (series) => {
    const id = `${number}/${series.name}`;
    return make("button", { class: hidden.has(id) ? "off" : "", title: series.name,
      onclick: () => { if (!hidden.delete(id)) hidden.add(id); fill(panel); } }, key(series), series.name);
  };
  const { heads, rows, table } = given.legend;
  if (!table) {
    return make("div", { class: "legend" }, make("div", { class: "list" }, ...rows.map((row) =>
      make("span", {}, entry(given.series[row.series]), ...row.cells.map((text, at) => ` ${heads[at]}: ${text}`)))));
  }
  return make("div", { class: "legend" }, make("table", {},
    make("tr", {}, make("th"), ...heads.map((head) => make("th", {}, head))),
    ...rows.map((row) => make("tr", {}, make("td", {}, entry(given.series[row.series])), ...row.cells.map((text) => make("td", {}, text))))));
}

// ---- from here on and again

async function refresh() {
  try {
    const answer = await fetch(page.source + location.search);
    const text = await answer.text();
    if (!answer.ok) throw new Error(text);
    await draw(JSON.parse(text));
  } catch (error) {
    const place = document.querySelector(".bar .trouble") ?? document.body;
    place.textContent = `No new data: ${error.message}`;
  }
  setTimeout(refresh, page.refresh);
}

let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(fillAll, 100);
});
matchMedia("(prefers-color-scheme: light)").addEventListener("change", () => fillAll());
if (page.data) draw(page.data);
else refresh();
