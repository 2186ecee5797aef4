// What the scripts of this folder share: where to call, and how to tell the
// driver what an answer cost.
import assert from 'node:assert/strict'

export const url = process.env.ENGY_URL
export const apiKey = process.env.ENGY_API_KEY
// A key whose account has no money.
export const poorKey = process.env.ENGY_POOR_KEY
export const model = 'glm-5.2'

// spent reports the usage of one answer. The driver prices it and holds the sum
// of all answers against the ledger, so each answer must be reported once.
export function spent({ input, cached = 0, output }) {
  for (const n of [input, cached, output]) assert.ok(Number.isInteger(n) && n >= 0, `a count is ${n}`)
  console.log(JSON.stringify({ model, input, cached, output }))
}

// refused expects a promise to fail with an error that check accepts.
export async function refused(promise, check) {
  let failure
  try {
    await promise
  } catch (e) {
    failure = e
  }
  assert.ok(failure, 'the call should have failed')
  check(failure)
}

// weather is a tool and its answer.
export const weather = {
  name: 'get_weather',
  description: 'Tells the weather of a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false },
  run: ({ city }) => `rain in ${city}`,
}

// askWeather makes the simulator call the tool and then repeat its answer.
export const askWeather = 'How is the weather? [[sim tool=get_weather args={"city":"New%20York"} echo_result]]'
export const toldWeather = 'rain in New York'

// tooLong is a prompt of more tokens than the model's window, by any count.
export const tooLong = 'word '.repeat(1_048_576)
