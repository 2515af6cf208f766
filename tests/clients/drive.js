// Performs with the npm client `openwhisk` what the tests ask for: one JSON a line in, one JSON a line out.
'use strict'

const readline = require('readline')
const openwhisk = require('openwhisk')

// {"$base64": text} stands for a Buffer, which JSON does not have.
const revive = (_, value) => (value && value.$base64 ? Buffer.from(value.$base64, 'base64') : value)

const perform = async ({ options, resource, verb, args }) => {
  const client = openwhisk(options)
  try {
    return { value: await client[resource][verb](...args) }
  } catch (error) {
    return { name: error.name, message: error.message, statusCode: error.statusCode, error: error.error }
  }
}

readline.createInterface({ input: process.stdin }).on('line', async line => {
  process.stdout.write(JSON.stringify(await perform(JSON.parse(line, revive))) + '\n')
})
