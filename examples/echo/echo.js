// An OpenWhisk action that returns its arguments.
function main(args) {
  console.log("arguments:", Object.keys(args).sort());
  return { echo: args };
}
