// The calculator of the page on sizing. Its three tables are all that it knows: the numbers of the first become fields,
// the second has what was measured, and the formulas of the third are computed with both, each by the names above it.
const UNITS = { "": 1, "µs": 1e-6, bytes: 1, KB: 1e3, MB: 1e6 };
const [have, takes, out] = [...document.querySelectorAll("article table")].map((table) =>
  [...table.tBodies[0].rows].map((row) => [...row.cells]),
);
const text = (cell) => cell.textContent.trim();

const measured = takes.map(([name, , value]) => {
  const [number, unit = ""] = text(value).split(" ");
  return [text(name), number * UNITS[unit]];
});

const fields = have.map(([name, what, value]) => {
  const field = document.createElement("input");
  Object.assign(field, { type: "number", min: 0, step: "any", value: text(value) });
  field.setAttribute("aria-label", text(what));
  field.style.cssText = "width: 6em; color: inherit; background: inherit; border: 1px solid; font: inherit";
  field.addEventListener("input", compute);
  value.replaceChildren(field);
  return [text(name), field];
});

function compute() {
  const known = { max: Math.max, ceil: Math.ceil, ...Object.fromEntries(measured) };
  for (const [name, field] of fields) known[name] = field.valueAsNumber;
  for (const [name, , formula, shown] of out) {
    const result = new Function(...Object.keys(known), `return ${text(formula)}`)(...Object.values(known));
    known[text(name)] = result;
    shown.textContent = Number.isFinite(result)
      ? result.toLocaleString("en", { maximumSignificantDigits: 3 })
      : "";
  }
}

for (const [name] of [...have, ...takes, ...out]) name.style.whiteSpace = "nowrap";
compute();
