// Draws the document that dashboards/preview/document.py returns. All values are computed there.
"use strict";

const page = JSON.parse(document.getElementById("page").textContent);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const light = matchMedia("(prefers-color-scheme: light)");
// "#dark #light" is a colour that differs between Grafana's themes
const colour = (name) => (!name || name === "text" ? css("--text") : name.split(" ").at(light.matches ? -1 : 0));
const tip = createNode("div", { id: "tip", hidden: true });
const hidden = new Set(); // "panel/series" hidden by a click in a legend
let panels = []; // the panels on the page: {element, body, data}
let currentStructure = ""; // of the page: while it does not change, a refresh only updates the panels
let shift = 0; // offset of the time zone in milliseconds

function createNode(tag, attributes = {}, ...children) {
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

// ---- tooltip

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

// ---- page

function bar(data) {
  return createNode("div", { class: "bar" },
    createNode("h1", {}, data.title),
    createNode("span", { class: "right" }, page.refresh ? timeRangeSelect() : null, createNode("span", { class: "when" })),
    createNode("div", { class: "variables" }, ...data.variables.map(variableSelect)),
    createNode("span", { class: "note" }, "Preview of the Grafana dashboard, drawn by vllm-slo from live queries; not Grafana"),
    createNode("span", { class: "note trouble" }));
}

// On a wide screen, where Grafana docks its menu.
function menu() {
  return createNode("nav", {}, ...Object.entries(page.pages).map(([name, title]) =>
    createNode("a", { href: address(name), "aria-current": name === page.name ? "page" : undefined }, title)));
}

// A served page stores its selection and time range in its URL, as Grafana does; a file has no query string.
function address(name, search = location.search) {
  return page.link.replace("*", name) + (page.refresh ? search : "");
}

function updateSearch(change) {
  const search = new URLSearchParams(location.search);
  change(search);
  location.search = search;
}

function variableSelect(data) {
  const label = `${data.label}: `;
  if (!page.refresh || data.options.length < 2) return createNode("span", { class: "chosen" }, label, createNode("b", {}, data.text));
  const others = data.values.length > 1 ? [[data.text, ""]] : [];
  const options = [...others, ...data.options].map(([text, value]) =>
    createNode("option", { value, selected: value === (others.length ? "" : data.values[0]) }, text));
  return createNode("label", { class: "chosen" }, label, createNode("select", {
    onchange: (event) => updateSearch((search) => search.set(`var-${data.name}`, event.target.value)) }, ...options));
}

function timeRangeSelect() {
  const from = new URLSearchParams(location.search).get("from");
  const usual = ["5m", "15m", "30m", "1h", "3h", "6h", "12h", "1d", "2d", "7d"].map((time) => [`last ${time}`, `now-${time}`]);
  const options = usual.some(([, value]) => value === from) ? usual : [[from ?? "default", from ?? ""], ...usual];
  return createNode("select", { "aria-label": "Time range", onchange: (event) => updateSearch((search) => {
    search.set("from", event.target.value);
    search.set("to", "now");
  }) }, ...options.map(([text, value]) => createNode("option", { value, selected: value === from }, text)));
}

function updateBar(data) {
  document.querySelector(".bar .when").textContent = `${clock(data.from)} to ${clock(data.to)} ${data.zone}`;
  document.querySelector(".bar .trouble").textContent = data.errors.join("; ");
}

function section(data) {
  const top = Math.min(...data.panels.map((panel) => panel.position[1]));
  const grid = createNode("div", { class: "grid" }, ...data.panels.map((panel) => frame(panel, top)));
  if (!data.title) return createNode("section", { class: "section" }, grid);
  const element = createNode("section", { class: data.closed ? "section closed" : "section" },
    createNode("button", { onclick: () => { element.classList.toggle("closed"); fillAll(); } }, data.title), grid);
  return element;
}

function frame(data, top) {
  const [x, y, width, height] = data.position;
  const body = createNode("div", { class: "body" });
  const info = createNode("button", { class: "info", "aria-label": data.description,
    onmousemove: (event) => showTip(event, data.description), onmouseleave: hideTip }, "i");
  const element = createNode("article", { class: "panel", "data-type": data.type,
    style: { gridColumn: `${x + 1} / span ${width}`, gridRow: `${y - top + 1} / span ${height}` } },
    data.title || data.description
      ? createNode("header", {}, createNode("h2", { title: data.title }, data.title), data.description ? info : null) : null,
    createNode("div", { class: "errors trouble" }), body);
  element.style.setProperty("--rows", height);
  panels.push({ element, body, data, number: panels.length });
  return element;
}

async function draw(data) {
  shift = data.shift;
  const structure = JSON.stringify([data.title, data.variables, data.sections.map((each) =>
    [each.title, each.panels.map((panel) => [panel.kind, panel.title, panel.position])])]);
  if (structure !== currentStructure) {
    panels = [];
    document.body.replaceChildren(bar(data), menu(), createNode("main", {}, ...data.sections.map(section)), tip);
    currentStructure = structure;
  }
  data.sections.flatMap((each) => each.panels).forEach((panel, number) => { panels[number].data = panel; });
  page.annotations = data.annotations;
  page.span = [data.from, data.to];
  updateBar(data);
  await fillAll();
  if (!document.documentElement.dataset.drawn) highlightLinkedPanel();
  document.documentElement.dataset.drawn = `${Number(document.documentElement.dataset.drawn || 0) + 1}`;
}

// Scrolls to the panel that the URL names, as in links from alerts.
function highlightLinkedPanel() {
  const id = new URLSearchParams(location.search).get("viewPanel")?.replace("panel-", "");
  const element = panels.find((panel) => `${panel.data.id}` === id)?.element;
  if (!element) return;
  element.closest(".section").classList.remove("closed");
  element.classList.add("spotlight");
  fillAll().then(() => element.scrollIntoView({ block: "center" }));
}

function fillAll() {
  return Promise.all(panels.map(fill));
}

async function fill(panel) {
  const { element, body, data } = panel;
  if (!element.offsetParent) return; // in a closed row
  element.querySelector(".errors").replaceChildren(...data.errors.map((text) => createNode("div", {}, text)));
  if (data.empty) {
    body.querySelectorAll(".plot").forEach((plot) => Plotly.purge(plot));
    body.className = "body";
    body.replaceChildren(createNode("div", { class: "empty" }, data.errors.length ? "" : data.empty));
    element.dataset.drawn = "0";
    return;
  }
  element.dataset.drawn = await DRAW[data.kind](panel);
}

// ---- one function per kind of panel, which returns the number of items drawn

const DRAW = {
  async graph(panel) {
    const { body, data, number } = panel;
    body.className = `body graph ${data.legend?.placement ?? ""}`;
    body.querySelector(".legend")?.remove();
    body.querySelector(".scrollbar")?.remove();
    const list = data.legend ? legend(panel) : null;
    if (list) body.append(list);
    await drawPlot(panel, data.series.map((series) => trace(data, series, !hidden.has(`${number}/${series.name}`))));
    if (list) drawScrollbar(list, body);
    return data.series.length;
  },

  async heatmap(panel) {
    const { body, data } = panel;
    body.className = "body graph";
    body.querySelector(".scale")?.remove();
    body.append(createNode("div", { class: "scale" }, "0", createNode("i"), data.greatest));
    await drawPlot(panel, [{ type: "heatmap", x0: data.start + shift, dx: data.step, z: data.rows, zmin: 0, zmax: 1, hoverinfo: "none",
      ygap: 1, colorscale: "Cividis", showscale: false }]);
    return data.rows.length;
  },

  stat({ body, data }) {
    body.className = "body figures";
    const { width, height } = contentSize(body);
    const sizes = figureSizes(data, width, height);
    body.replaceChildren(...data.items.map((item, at) => {
      const box = sizes[at];
      const name = item.name ? createNode("span", { title: item.name, style: { fontSize: `${box.title}px` } }, item.name) : null;
      return createNode("div", { class: `figure${box.wide ? " wide" : ""}${item.name ? "" : " centred"}`,
        style: { width: `${box.width}px`, height: `${box.height}px`, padding: `${box.padding}px` } }, name,
        createNode("b", { style: { color: colour(item.colour), fontSize: `${box.value}px` } }, item.text));
    }));
    return data.items.length;
  },

  bars({ body, data }) {
    body.className = "body bars";
    body.replaceChildren(...data.items.flatMap((item) => [
      createNode("span", { class: "name", title: item.name }, item.name),
      createNode("div", { class: "track" }, createNode("i", { style: { width: `${100 * item.share}%`, background: colour(item.colour) } })),
      createNode("span", { class: "value", style: { color: colour(item.colour) } }, item.text)]));
    return data.items.length;
  },

  table({ body, data, element }) {
    body.className = "body table";
    const rows = createNode("tbody");
    const order = { at: -1, down: false };
    const fillRows = (cells) => rows.replaceChildren(...cells.map((row) =>
      createNode("tr", {}, ...row.map((cell, at) => tableCell(cell, data.columns[at])))));
    const sort = (at) => {
      order.down = order.at === at && !order.down;
      order.at = at;
      const sign = order.down ? -1 : 1;
      // a missing value is lower than all others
      const compare = (a, b) => (a === null || b === null ? (a !== null) - (b !== null)
        : typeof a === "number" ? a - b : String(a).localeCompare(b));
      fillRows([...data.rows].sort(({ [at]: { key: a } }, { [at]: { key: b } }) => sign * compare(a, b)));
    };
    fillRows(data.rows);
    const widths = columnWidths(data.columns, contentSize(body).width);
    const heads = data.columns.map((column, at) => createNode("th", { onclick: () => sort(at), title: column.title,
      style: { textAlign: column.align, width: `${widths[at]}px` } }, column.title));
    const total = widths.reduce((sum, width) => sum + width, 0);
    body.replaceChildren(createNode("table", { style: { width: `${total}px` } },
      createNode("thead", {}, createNode("tr", {}, ...heads)), rows), createNode("div", { class: "more" }, data.note));
    drawScrollbar(body, element);
    return data.rows.length;
  },

  text({ body, data }) {
    body.className = "body text";
    body.innerHTML = data.html;
    return body.textContent.length;
  },

  unknown({ body, data }) {
    body.replaceChildren(createNode("div", { class: "empty" }, `The preview does not support panels of type ${data.type}`));
    return 1;
  },
};

// A screenshot has no scrollbars; without one nobody sees that a legend or a table has more rows.
function drawScrollbar(area, host) {
  host.querySelector(":scope > .scrollbar")?.remove();
  if (area.scrollHeight <= area.clientHeight + 1 || area.offsetWidth > area.clientWidth) return;
  host.append(createNode("div", { class: "scrollbar", style: { top: `${area.offsetTop}px`,
    left: `${area.offsetLeft + area.offsetWidth - 6}px`, height: `${area.clientHeight ** 2 / area.scrollHeight}px` } }));
}

// The width and height within the padding of an element.
function contentSize(element) {
  const style = getComputedStyle(element), box = element.getBoundingClientRect(); // clientWidth is rounded
  return { width: box.width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight),
    height: box.height - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom) };
}

// computeColWidths of @grafana/ui: columns without a width share what is left, but are not narrower than their lowest width.
function columnWidths(columns, available) {
  const left = available - columns.reduce((sum, column) => sum + column.width, 0);
  const shared = left / columns.filter((column) => !column.width).length;
  return columns.map((column) => column.width || Math.max(column.minWidth, shared));
}

// ---- figures: BigValueLayout, calculateGridDimensions and calculateFontSize of @grafana/ui

const [GAP, LINE_HEIGHT, MAX_TITLE] = [3, 1.2, 30];

// The size and the font sizes of each value; those in the last line of a grid may be wider, and have a larger font.
function figureSizes(data, width, height) {
  const count = data.items.length;
  const longest = (part) => data.items.reduce((text, item) => (item[part].length > text.length ? item[part] : text), "");
  const texts = { name: longest("name"), text: longest("text") };
  const grid = { horizontal: { columns: 1, rows: count }, vertical: { columns: count, rows: 1 } }[data.orientation]
    ?? squareGrid(width, height, count);
  const across = (columns) => (width + GAP) / columns - GAP;
  const down = (height + GAP) / grid.rows - GAP;
  return data.items.map((item, at) => {
    const last = Math.floor(at / grid.columns) === grid.rows - 1;
    const box = across(last ? count - grid.columns * (grid.rows - 1) : grid.columns);
    return { width: box, height: down, ...fontSizes(data, texts, box, down) };
  });
}

function squareGrid(width, height, count) {
  const side = (long, short) => {
    const parts = Math.ceil(Math.sqrt((count * long) / short));
    return Math.floor((parts * short) / long) * parts < count ? short / Math.ceil((parts * short) / long) : long / parts;
  };
  const most = Math.floor(width / Math.max(side(width, height), side(height, width)));
  const rows = Math.ceil(count / most);
  return { columns: Math.ceil(count / rows), rows };
}

function fontSizes({ sizes }, texts, width, height) {
  const padding = height > 100 ? 12 : 8;
  const [room, tall, wide] = [width - 2 * padding, height - 2 * padding, width / height > 2.5];
  let title = texts.name ? fontSize(texts.name, (wide ? 0.6 : 1) * room, wide ? tall : 0.15 * height, 400, MAX_TITLE) : 0;
  const value = wide ? fontSize(texts.text, room * (texts.name ? 0.3 : 1), tall, 500)
    : fontSize(texts.text, room, tall - title * LINE_HEIGHT, 500);
  title = Math.min(0.7 * value, title);
  return { wide, padding, title: sizes.titleSize ?? title, value: sizes.valueSize ?? value };
}

function fontSize(text, width, height, weight, most = Infinity) {
  const context = (fontSize.context ??= document.createElement("canvas").getContext("2d"));
  context.font = `${weight} 14px Inter, system-ui, Helvetica, Arial, sans-serif`;
  return Math.min(height / LINE_HEIGHT, (width / (context.measureText(text).width + 2)) * 14, most);
}

function tableCell(cell, column) {
  const style = { textAlign: column.align };
  if (column.kind === "color-background") Object.assign(style, { background: colour(cell.colour), color: colour(cell.textColour) });
  else if (cell.colour) style.color = colour(cell.colour);
  return createNode("td", { style, title: cell.text }, linkedText(cell));
}

// Links to other sites, and to dashboards that have a page, because there may be no Grafana.
function linkedText({ text, link }) {
  if (/^https?:\/\//.test(link ?? "")) return createNode("a", { href: link }, text);
  const [, uid, search] = /^\/d\/([^/?]+)[^?]*(\?.*)?$/.exec(link ?? "") ?? [];
  const name = page.uids[uid];
  const parameters = new URLSearchParams(search);
  for (const end of ["from", "to"]) {
    const moment = new URLSearchParams(location.search).get(end);
    if (moment) parameters.set(end, moment);
  }
  return name ? createNode("a", { href: address(name, `?${parameters}`) }, text) : text;
}

// ---- graphs

const MOST_ROWS = 25; // in a tooltip

function trace(data, series, visible) {
  return { name: series.name, x0: data.start + shift, dx: data.step, y: series.y, hoverinfo: "none", visible,
    yaxis: series.axis ? "y2" : "y", type: "scatter", mode: "lines",
    line: { color: colour(series.colour), width: series.width, dash: series.dash ? "dash" : "solid" },
    stackgroup: series.stack || undefined,
    fill: series.stack ? undefined : series.fill ? "tozeroy" : "none", fillcolor: faded(colour(series.colour), series.fill) };
}

function faded(code, share) {
  return /^#\w{6}$/.test(code) ? code + Math.round(255 * share).toString(16).padStart(2, "0") : code;
}

// Markers of annotations, so that they have a tooltip away from any line.
function annotationMarkers(data) {
  return { type: "scatter", mode: "markers", hoverinfo: "none", cliponaxis: false,
    x: page.annotations.map(({ at }) => Math.max(at, page.span[0]) + shift), y: page.annotations.map(() => data.axes[0].range[0]),
    marker: { symbol: "triangle-up", size: page.annotations.map(({ until }) => (until ? 0 : 9)),
      color: page.annotations.map((annotation) => colour(annotation.colour)) } };
}

// The annotations at a time, or within a few pixels of it.
function annotationsAt(moment) {
  const near = (page.span[1] - page.span[0]) / 150;
  return page.annotations.filter(({ at, until }) => at - near <= moment && moment <= (until ?? at) + near);
}

function layout(data, width) {
  const axis = (one) => ({ range: [...one.range], tickvals: one.at, ticktext: one.text, title: { text: one.title }, side: one.side,
    fixedrange: true, zeroline: false, gridcolor: css("--line"), automargin: true, ticklabelstandoff: 4 });
  const [left, right] = data.axes;
  const hours = (page.span[1] - page.span[0]) / 3600e3;
  const limits = data.limits.map((limit) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: limit.y, y1: limit.y,
    line: { color: colour(limit.colour), width: 1.5, dash: "dash" } }));
  // as in Grafana, a region tints the whole height and has an edge on both sides; later annotations cover earlier ones
  const annotationShapes = page.annotations.flatMap((annotation) => [
    ...(annotation.until ? [[1, 0.1], [0.02, 1]].map(([high, opacity]) => ({ type: "rect", yref: "paper", y0: 0, y1: high,
      x0: annotation.at + shift, x1: annotation.until + shift, fillcolor: colour(annotation.colour), opacity, line: { width: 0 } })) : []),
    ...[annotation.at, annotation.until].filter(Boolean).map((at) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: at + shift,
      x1: at + shift, line: { color: colour(annotation.colour), width: 1, dash: "dash" } }))]);
  return { margin: { l: 8, r: 8, t: 8, b: 28 }, paper_bgcolor: "transparent", plot_bgcolor: "transparent", showlegend: false,
    font: { color: css("--faint"), size: 11, family: "Inter, system-ui, Helvetica, Arial, sans-serif" },
    hovermode: "x", dragmode: "zoom", uirevision: "kept", shapes: [...limits, ...annotationShapes],
    xaxis: { type: "date", range: [page.span[0] + shift, page.span[1] + shift], gridcolor: css("--line"), tickangle: 0, ticklabelstandoff: 6,
      nticks: Math.max(2, Math.floor(width / 75)), tickformat: hours <= 0.2 ? "%H:%M:%S" : hours <= 24 ? "%H:%M" : hours <= 240 ? "%m/%d %H:%M" : "%m/%d" },
    yaxis: axis(left), ...(right ? { yaxis2: { ...axis(right), overlaying: "y", showgrid: false } } : {}) };
}

async function drawPlot(panel, traces) {
  const { body, data } = panel;
  let plot = body.querySelector(".plot");
  if (!plot) {
    plot = createNode("div", { class: "plot" });
    body.querySelector(".empty")?.remove();
    body.prepend(plot);
  }
  await Plotly.react(plot, [...traces, annotationMarkers(data)], layout(data, plot.clientWidth), { displayModeBar: false });
  if (!plot.querySelector(".crosshair")) {
    plot.append(createNode("div", { class: "crosshair", hidden: true }));
    plot.on("plotly_hover", (hover) => onHover(panel, hover));
    plot.on("plotly_unhover", hideTip);
  }
}

function onHover({ data }, { points, event }) {
  if (data.rows) {
    const [cell] = points.filter((point) => point.curveNumber === 0);
    if (!cell) return;
    const [row, column] = cell.pointIndex;
    crosshair(data.start + column * data.step);
    showTip(event, createNode("div", { class: "time" }, clock(data.start + column * data.step)),
      createNode("table", {}, createNode("tr", {}, createNode("td", {}, data.names[row]),
        createNode("td", {}, data.text[row][column]))));
    return;
  }
  const seriesPoints = points.filter((point) => point.curveNumber < data.series.length);
  const at = seriesPoints.length ? data.start + seriesPoints[0].pointIndex * data.step : page.annotations[points[0].pointIndex].at;
  const value = (point) => data.series[point.curveNumber].y[point.pointIndex];
  if (data.order !== "none") seriesPoints.sort((a, b) => (data.order === "desc" ? value(b) - value(a) : value(a) - value(b)));
  const rows = seriesPoints.slice(0, MOST_ROWS).map((point) => {
    const series = data.series[point.curveNumber];
    return createNode("tr", {}, createNode("td", {}, colourKey(series), series.name), createNode("td", {}, series.text[point.pointIndex]));
  });
  crosshair(at);
  showTip(event, createNode("div", { class: "time" }, clock(at)), createNode("table", {}, ...rows),
    seriesPoints.length > MOST_ROWS ? createNode("div", { class: "time" }, `and ${seriesPoints.length - MOST_ROWS} more`) : "",
    ...annotationsAt(at).map((annotation) =>
      createNode("div", {}, colourKey(annotation), `${clock(annotation.at)} ${annotation.title} ${annotation.text}`)));
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

function colourKey(one) {
  return createNode("i", { class: "key", style: { background: colour(one.colour) } });
}

function legend(panel) {
  const { data, number } = panel;
  const entry = (series) => {
    const id = `${number}/${series.name}`;
    return createNode("button", { class: hidden.has(id) ? "off" : "", title: series.name,
      onclick: () => { if (!hidden.delete(id)) hidden.add(id); fill(panel); } }, colourKey(series), series.name);
  };
  const { heads, rows, table } = data.legend;
  if (!table) {
    return createNode("div", { class: "legend" }, createNode("div", { class: "list" }, ...rows.map((row) =>
      createNode("span", {}, entry(data.series[row.series]), ...row.cells.map((text, at) => ` ${heads[at]}: ${text}`)))));
  }
  return createNode("div", { class: "legend" }, createNode("table", {},
    createNode("tr", {}, createNode("th"), ...heads.map((head) => createNode("th", {}, head))),
    ...rows.map((row) => createNode("tr", {}, createNode("td", {}, entry(data.series[row.series])),
      ...row.cells.map((text) => createNode("td", {}, text))))));
}

// ---- start and refresh

async function refresh() {
  try {
    const response = await fetch(page.source + location.search);
    const text = await response.text();
    if (!response.ok) throw new Error(text);
    await draw(JSON.parse(text));
  } catch (error) {
    const target = document.querySelector(".bar .trouble") ?? document.body;
    target.textContent = `No new data: ${error.message}`;
  }
  setTimeout(refresh, page.refresh);
}

let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(fillAll, 100);
});
light.addEventListener("change", () => fillAll());
if (page.data) draw(page.data);
else refresh();
