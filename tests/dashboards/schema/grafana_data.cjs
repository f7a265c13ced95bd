// Runs functions of @grafana/data on the cases on standard input, and prints the results as one line of JSON.
"use strict";

// The package expects a browser.
globalThis.navigator ??= { language: "en-US", languages: ["en-US"] };
const load = (module) => require(`${__dirname}/node_modules/@grafana/data/dist/cjs/${module}.cjs`);
const { getDisplayProcessor } = load("field/displayProcessor");
const { getFieldDisplayValues } = load("field/fieldDisplay");
const { of } = require(`${__dirname}/node_modules/rxjs`);
const { createTheme } = load("themes/createTheme");
const { reduceField } = load("transformations/fieldReducer");
const { sortDataFrame } = load("dataframe/processDataFrame");
const { calculateFieldTransformer } = load("transformations/transformers/calculateField");
const { sortByTransformer } = load("transformations/transformers/sortBy");
const { mergeTransformer } = load("transformations/transformers/merge");
const { guessDecimals, roundDecimals } = load("utils/numbers");
const { formattedValueToString } = load("valueFormats/valueFormats");

const theme = createTheme();
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
