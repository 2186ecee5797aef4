// The openai package on chat completions, models and Responses.
import assert from 'node:assert/strict'
import OpenAI from 'openai'
import { zodResponseFormat } from 'openai/helpers/zod'
import { z } from 'zod'
import { apiKey, askWeather, model, poorKey, refused, spent, toldWeather, tooLong, url, weather } from './ledger.mjs'

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 })
const user = (content) => [{ role: 'user', content }]
const chatSpent = (u) =>
  spent({ input: u.prompt_tokens, cached: u.prompt_tokens_details.cached_tokens, output: u.completion_tokens })

// Whole and streamed answers are the same, and so is what they cost.
const ask = { model, messages: user('say something [[sim tokens=20]]') }
const { data: whole, response } = await client.chat.completions.create(ask).withResponse()
assert.equal(response.headers.get('x-engy-charged-micro'), String(whole.x_engy.charged_micro))
assert.equal(whole.usage.completion_tokens, 20)
chatSpent(whole.usage)
const stream = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } })
let pieces = 0
stream.on('content', () => pieces++)
const streamed = await stream.finalChatCompletion()
assert.ok(pieces > 1)
assert.equal(streamed.choices[0].message.content, whole.choices[0].message.content)
assert.equal(streamed.id.length, whole.id.length)
assert.equal(streamed.usage.completion_tokens, 20)
chatSpent(streamed.usage)

// The helper runs a tool and sends its result back.
const runner = client.chat.completions.runTools({
  model,
  messages: user(askWeather),
  tools: [{ type: 'function', function: { ...weather, function: weather.run, parse: JSON.parse, run: undefined } }],
})
const calls = []
runner.on('functionToolCall', (c) => calls.push(c))
assert.equal(await runner.finalContent(), toldWeather)
assert.deepEqual(calls.map((c) => [c.name, JSON.parse(c.arguments)]), [['get_weather', { city: 'New York' }]])
for (const c of runner.allChatCompletions()) chatSpent(c.usage)

// Structured output is parsed by the client.
const shape = z.object({ city: z.string(), days: z.number().int() })
const parsed = await client.chat.completions.parse({ model, messages: user('a city and some days'), response_format: zodResponseFormat(shape, 'trip') })
assert.ok(shape.safeParse(parsed.choices[0].message.parsed).success)
chatSpent(parsed.usage)

const logprobs = await client.chat.completions.create({ model, messages: user('hi [[sim tokens=3]]'), logprobs: true, top_logprobs: 2 })
assert.deepEqual(logprobs.choices[0].logprobs.content.map((c) => c.top_logprobs.length), [2, 2, 2])
chatSpent(logprobs.usage)

const models = []
for await (const m of client.models.list()) models.push(m.id)
assert.ok(models.includes(model))
assert.equal((await client.models.retrieve(`engy/${model}`)).context_length, 262144)

// Errors are of the client's own classes, and cost nothing.
const create = (c, body) => c.chat.completions.create({ ...ask, ...body })
await refused(create(client, { model: 'no-such-model' }), (e) => {
  assert.ok(e instanceof OpenAI.NotFoundError)
  assert.equal(e.type, 'not_found_error')
})
await refused(create(client, { messages: user(tooLong) }), (e) => {
  assert.ok(e instanceof OpenAI.BadRequestError)
  assert.match(e.message, /context window of 262144/)
})
const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'sk-engy-wrong-0123456789', maxRetries: 0 })
await refused(create(stranger), (e) => assert.ok(e instanceof OpenAI.AuthenticationError))
const poor = new OpenAI({ baseURL: `${url}/v1`, apiKey: poorKey, maxRetries: 0 })
await refused(create(poor), (e) => {
  assert.equal(e.status, 402)
  assert.equal(e.type, 'insufficient_quota')
})
// An answer that breaks after its beginning is an error, never a short answer.
await refused(client.chat.completions.stream({ model, messages: user('go on [[sim tokens=50 itl=5ms cut=20]]') }).finalChatCompletion(), (e) => {
  assert.ok(e instanceof OpenAI.APIError)
  assert.equal(e.type, 'api_error')
})

// Responses: whole, streamed with the helper, and a round with a tool.
const responseSpent = (u) => spent({ input: u.input_tokens, cached: u.input_tokens_details.cached_tokens, output: u.output_tokens })
const request = { model, input: 'say something [[sim tokens=20]]' }
const response1 = await client.responses.create(request)
assert.equal(response1.status, 'completed')
assert.equal(response1.usage.output_tokens, 20)
responseSpent(response1.usage)
const responses = client.responses.stream(request)
const kinds = new Set()
for await (const event of responses) kinds.add(event.type)
const response2 = await responses.finalResponse()
assert.equal(response2.output_text, response1.output_text)
assert.equal(response2.status, 'completed')
for (const kind of ['response.created', 'response.output_text.delta', 'response.completed']) assert.ok(kinds.has(kind), kind)
responseSpent(response2.usage)
assert.equal(response2.x_engy.charged_micro > 0, true)

const { name, description, parameters } = weather
const tools = [{ type: 'function', name, description, parameters, strict: true }]
const input = [{ role: 'user', content: askWeather }]
const asked = await client.responses.create({ model, input, tools })
responseSpent(asked.usage)
const call = asked.output.find((item) => item.type === 'function_call')
assert.deepEqual(JSON.parse(call.arguments), { city: 'New York' })
input.push(...asked.output, { type: 'function_call_output', call_id: call.call_id, output: weather.run(JSON.parse(call.arguments)) })
const told = await client.responses.create({ model, input, tools })
assert.equal(told.output_text, toldWeather)
responseSpent(told.usage)

const respond = (c, body) => c.responses.create({ ...request, ...body })
await refused(respond(client, { model: 'no-such-model' }), (e) => assert.ok(e instanceof OpenAI.NotFoundError))
await refused(respond(client, { input: tooLong }), (e) => assert.ok(e instanceof OpenAI.BadRequestError))
await refused(respond(poor), (e) => assert.equal(e.status, 402))
// Nothing is stored here, and that is said, not passed over.
await refused(respond(client, { previous_response_id: 'resp_1' }), (e) => assert.ok(e instanceof OpenAI.BadRequestError))
const broken = await client.responses.create({ model, input: 'go on [[sim tokens=50 itl=5ms cut=20]]', stream: true })
let last
for await (const event of broken) last = event
assert.equal(last.type, 'response.failed')
