// The package @anthropic-ai/sdk on Messages, counting and models.
import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import { apiKey, askWeather, model, poorKey, refused, spent, toldWeather, tooLong, url, weather } from './ledger.mjs'

const client = new Anthropic({ baseURL: url, apiKey, maxRetries: 0 })
const user = (content) => [{ role: 'user', content }]
const messageSpent = (u) =>
  spent({ input: u.input_tokens + u.cache_read_input_tokens, cached: u.cache_read_input_tokens, output: u.output_tokens })

// Whole and streamed answers are the same, save for thought, which only a
// stream shows.
const ask = { model, max_tokens: 100, messages: user('say something [[sim tokens=20 think=5]]') }
const { data: whole, response } = await client.messages.create(ask).withResponse()
assert.ok(Number(response.headers.get('x-engy-charged-micro')) > 0)
assert.equal(whole.stop_reason, 'end_turn')
assert.deepEqual(whole.content.map((b) => b.type), ['text'])
assert.equal(whole.usage.output_tokens, 25)
messageSpent(whole.usage)
const stream = client.messages.stream(ask)
let pieces = 0
stream.on('text', () => pieces++)
const streamed = await stream.finalMessage()
assert.ok(pieces > 1)
assert.deepEqual(streamed.content.map((b) => b.type), ['thinking', 'text'])
assert.ok(streamed.content[0].signature)
assert.equal(streamed.content[1].text, whole.content[0].text)
assert.equal(streamed.usage.output_tokens, 25)
messageSpent(streamed.usage)
// The thought may be sent back.
const next = await client.messages.create({ ...ask, messages: [...ask.messages, { role: 'assistant', content: streamed.content }, ...user('go on [[sim tokens=3]]')] })
assert.equal(next.usage.output_tokens, 3)
messageSpent(next.usage)

// The helper runs a tool and sends its result back, whole and streamed.
for (const stream of [false, true]) {
  const results = []
  const runner = client.beta.messages.toolRunner({
    model,
    max_tokens: 100,
    messages: user(askWeather),
    tools: [{ name: weather.name, description: weather.description, input_schema: weather.parameters, parse: (i) => i, run: (i) => (results.push(i), weather.run(i)) }],
    stream,
  })
  let last
  for await (const turn of runner) {
    last = stream ? await turn.finalMessage() : turn
    messageSpent(last.usage)
  }
  assert.deepEqual(results, [{ city: 'New York' }])
  assert.equal(last.content[0].text, toldWeather)
  assert.equal(last.stop_reason, 'end_turn')
}

const count = async (body) => (await client.messages.countTokens({ model, messages: user('hello there'), ...body })).input_tokens
const short = await count({})
assert.ok(short > 0)
assert.ok((await count({ system: 'be brief, be kind, be right' })) > short)

const models = []
for await (const m of client.models.list()) models.push(m.id)
assert.ok(models.includes(model))
assert.equal((await client.models.retrieve(model)).type, 'model')

// Errors are of the client's own classes, and cost nothing.
const create = (c, body) => c.messages.create({ ...ask, ...body })
await refused(create(client, { model: 'no-such-model' }), (e) => {
  assert.ok(e instanceof Anthropic.NotFoundError)
  assert.equal(e.type, 'not_found_error')
})
await refused(create(client, { messages: user(tooLong) }), (e) => {
  assert.ok(e instanceof Anthropic.BadRequestError)
  assert.match(e.message, /prompt is too long: \d+ tokens > 262144 maximum/)
})
const stranger = new Anthropic({ baseURL: url, apiKey: 'sk-engy-wrong-0123456789', maxRetries: 0 })
await refused(create(stranger), (e) => assert.ok(e instanceof Anthropic.AuthenticationError))
const poor = new Anthropic({ baseURL: url, apiKey: poorKey, maxRetries: 0 })
await refused(create(poor), (e) => assert.equal(e.status, 402))
// An answer that breaks after its beginning is an error, never a short answer.
await refused(client.messages.stream({ ...ask, messages: user('go on [[sim tokens=50 itl=5ms cut=20]]') }).finalMessage(), (e) => {
  assert.ok(e instanceof Anthropic.APIError)
  assert.equal(e.type, 'api_error')
})
