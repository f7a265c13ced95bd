// Parses the LogQL on standard input with Grafana's grammar, and prints the names of the syntax tree's nodes as JSON.
"use strict";

const { parser } = require(`${__dirname}/node_modules/@grafana/lezer-logql/index.cjs`);

const names = [];
parser.parse(require("node:fs").readFileSync(0, "utf8")).iterate({ enter: ({ type }) => void names.push(type.name) });
console.log(JSON.stringify(names));
