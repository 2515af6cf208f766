// Evaluates expressions: a list of [source, bindings] as JSON on the input, a list of {value} or {error} on the output.
const jsonata = require("jsonata");
let text = "";
process.stdin.on("data", (part) => (text += part));
process.stdin.on("end", async () => {
  const results = [];
  for (const [source, bindings] of JSON.parse(text)) {
    try {
      const value = await jsonata(source).evaluate(null, bindings);
      results.push(value === undefined ? { error: "undefined" } : { value });
    } catch (error) {
      results.push({ error: String(error.message) });
    }
  }
  process.stdout.write(JSON.stringify(results));
});
