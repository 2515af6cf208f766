// An OpenWhisk action: an object in, an object out.
function main(args) {
  console.log("echo of", Object.keys(args).sort());
  return { echo: args };
}
