// Makes compositions with the npm package `openwhisk-composer`, deploys them with its own client, and calls them.
'use strict'

const composer = require('openwhisk-composer')
const connect = require('openwhisk-composer/client')

const [, , apihost, key, redis] = process.argv
const wsk = connect({ apihost, api_key: key }, true)

const login = composer.if(
  composer.action('authenticate', { action: function main ({ password }) { return { value: password === 'abc123' } } }),
  composer.action('success', { action: function main () { return { message: 'success' } } }),
  composer.action('failure', { action: function main () { return { message: 'failure' } } }))

const countdown = composer.let({ n: 3 },
  composer.while(
    composer.function(() => n-- > 0), // eslint-disable-line no-undef
    composer.action('add', { action: function main ({ sum }) { return { sum: sum + 2 } } })),
  composer.retain(composer.literal({ done: true })),
  ({ params, result }) => ({ sum: params.sum, done: result.done }))

const caught = composer.try('/whisk.system/utils/nothing-of-this-name', ({ error }) => ({ error: undefined, said: error }))

const pair = composer.parallel(
  composer.action('left', { action: function main () { return { side: 'left' } } }),
  composer.action('right', { action: function main () { return { side: 'right' } } }))

const run = async (name, composition, params) => {
  await wsk.compositions.deploy(Object.assign({ name }, composition.compile()), true)
  return wsk.actions.invoke({ name, params, blocking: true, result: true })
}

const main = async () => {
  const $composer = { redis: { uri: redis } }
  const results = {
    right: await run('login', login, { password: 'abc123' }),
    wrong: await run('login', login, { password: 'x' }),
    countdown: await run('countdown', countdown, { sum: 1 }),
    caught: await run('caught', caught, {}),
    parallel: redis ? await run('pair', pair, { $composer }) : null
  }
  process.stdout.write(JSON.stringify(results) + '\n')
}

main().catch((error) => { console.error(error); process.exit(1) })
