// Runs functions of one version of @grafana/data (`node grafana_data.cjs grafana-data-12`), and of uPlot, on the cases on
// standard input, and prints the results as one line of JSON.
"use strict";

const { rangeNum } = require("uplot"); // before there is a window

// The packages of Grafana expect a browser, and load hooks of React that none of these functions calls.
const Module = require("node:module");
const load = Module._load;
Module._load = (name, ...rest) => (name.startsWith("react-use") ? {} : load(name, ...rest));
const storage = { getItem: () => null, setItem() {} };
const page = { addEventListener() {}, matchMedia: () => ({ addListener() {} }), location: { search: "" }, localStorage: storage };
const navigator = { language: "en-US", languages: ["en-US"] };
for (const [name, value] of Object.entries({ window: page, localStorage: storage, navigator })) globalThis[name] ??= value;

const {
  applyFieldOverrides, createTheme, fieldColorModeRegistry, formattedValueToString, getDisplayProcessor, getFieldSeriesColor,
  getFieldDisplayValues, guessDecimals, reduceField, roundDecimals, sortDataFrame, standardFieldConfigEditorRegistry,
  standardTransformers: { calculateFieldTransformer, mergeTransformer, sortByTransformer },
} = require(process.argv[2]);
const { of } = require("rxjs");

const themes = ["dark", "light"].map((mode) => createTheme({ colors: { mode } }));
const [theme] = themes;
standardFieldConfigEditorRegistry.setInit(() => ["unit", "decimals", "displayName", "noValue"].map((id) => (
  { id, path: id, name: id, process: (value) => value, shouldApply: () => true })));
// JSON has no number for these.
const NAMES = { NaN, Infinity, "-Infinity": -Infinity };
const decode = (value) => (value !== null && typeof value === "object" ? NAMES[value.number] : value);
const encode = (value) => (typeof value === "number" && !Number.isFinite(value) ? { number: `${value}` } : value ?? null);

// Grafana reads the base threshold of a file, null, as -Infinity.
function field(type, config, values) {
  for (const step of config.thresholds?.steps ?? []) step.value ??= -Infinity;
  return { name: "Value", type, config, values: values.map(decode) };
}

const RUN = {
  display({ type, config, value }) {
    const shown = getDisplayProcessor({ field: field(type, config, [value]), theme, timeZone: "utc" })(decode(value));
    return { text: formattedValueToString(shown), colour: shown.color };
  },
  // as `values` of UPlotAxisBuilder in @grafana/ui
  ticks({ config, values, increment }) {
    const format = getDisplayProcessor({ field: field("number", config, []), theme, timeZone: "utc" });
    const decimals = guessDecimals(roundDecimals(increment, 6));
    return values.map((value) => formattedValueToString(format(value, decimals > 0 ? decimals : undefined)));
  },
  calculate({ name, values }) {
    return encode(reduceField({ field: field("number", {}, values), reducers: [name] })[name]);
  },
  sort({ type, values, descending }) {
    const rows = { name: "row", type: "number", config: {}, values: values.map((_, row) => row) };
    return sortDataFrame({ fields: [field(type, {}, values), rows], length: values.length }, 0, descending).fields[1].values;
  },
  // Tables with the column `name` and one of numbers, merged; then one operation after another.
  operations({ tables, operations }) {
    const frames = tables.map(({ title, rows }) => ({ length: rows.length, fields: [
      { name: "name", type: "string", config: {}, values: rows.map(([name]) => name) },
      { name: title, type: "number", config: {}, values: rows.map(([, value]) => decode(value)) },
    ] }));
    const context = { interpolate: (text) => text };
    const steps = operations.map((options) => calculateFieldTransformer.operator(options, context));
    let columns;
    of(frames).pipe(mergeTransformer.operator({}, context), ...steps).subscribe(([frame]) => {
      columns = frame.fields.map(({ name, values }) => [name, values.map(encode)]);
    });
    return columns;
  },
  // The colours of a series in both themes. A page has one theme, whose colours the mode keeps.
  colours({ config, values }) {
    return themes.map((each) => {
      fieldColorModeRegistry.get(config.color.mode).interpolator = undefined;
      const { color } = getFieldSeriesColor(field("number", config, values), each);
      const parts = color.match(/^rgb\((\d+), (\d+), (\d+)\)$/);
      return parts ? "#" + parts.slice(1).map((part) => Number(part).toString(16).padStart(2, "0")).join("") : color;
    });
  },
  // The settings of each column after overrides.
  overrides({ columns, defaults, overrides }) {
    const fields = columns.map(({ name, type, labels, values }) => ({ name, type, labels, config: {}, values: values.map(decode) }));
    const data = [{ refId: "A", length: fields[0].values.length, fields }];
    const [frame] = applyFieldOverrides({ data, fieldConfig: { defaults, overrides }, replaceVariables: (text) => text,
      theme, timeZone: "utc", fieldConfigRegistry: standardFieldConfigEditorRegistry });
    return frame.fields.map(({ config }) => ["unit", "decimals"].map((key) => config[key] ?? null));
  },
  // The ends of an axis: `range` of UPlotScaleBuilder in @grafana/ui
  axis({ low, high, soft }) {
    return rangeNum(low, high, Object.fromEntries(["min", "max"].map((end, at) =>
      [end, { pad: 0.1, soft: soft[at] ?? 0, mode: soft[at] === null ? 3 : 1 }])));
  },
  figures({ config, series }) {
    const data = series.map((values) => ({ fields: [field("number", config, values)], length: values.length }));
    const options = { data, fieldConfig: { defaults: field("number", config, []).config, overrides: [] },
      reduceOptions: { calcs: ["lastNotNull"] }, replaceVariables: (text) => text, theme, timeZone: "utc" };
    return getFieldDisplayValues(options).map(({ display }) => ({ text: formattedValueToString(display), colour: display.color }));
  },
  // A value per row of a table with columns of texts, sorted by one column after the other. The cells of a name are
  // replaced by the front end, which is not in this package.
  ranking({ texts, values, sorts, displayName, limit }) {
    const columns = Object.entries(texts).map(([name, cells]) => ({ name, type: "string", config: {}, values: cells }));
    const table = { fields: [...columns, field("number", {}, values)], length: values.length };
    const context = { interpolate: (text) => text };
    const steps = sorts.map((sort) => sortByTransformer.operator({ sort: [sort] }, context));
    let data;
    of([table]).pipe(...steps).subscribe((sorted) => { data = sorted; });
    const rows = data[0].fields;
    // after the transformations, as in Grafana
    Object.assign(rows.at(-1), { config: { displayName }, state: { scopedVars: { __dataContext: { value: {} } } } });
    const replaceVariables = (text, { __dataContext: { value } }) =>
      text.replace(/\$\{__data\.fields\[(\d+)\]\}/g, (_, index) => rows[index].values[value.rowIndex]);
    const options = { data, fieldConfig: { defaults: {}, overrides: [] }, reduceOptions: { calcs: [], values: true, limit },
      replaceVariables, theme, timeZone: "utc" };
    return getFieldDisplayValues(options).map(({ display }) => [display.title, formattedValueToString(display)]);
  },
};

const cases = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map(([name, options]) => RUN[name](options))));
