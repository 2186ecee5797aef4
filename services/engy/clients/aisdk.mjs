// The AI SDK with each of the providers that fit.
import assert from 'node:assert/strict'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, generateText, jsonSchema, Output, stepCountIs, streamText, tool } from 'ai'
import { apiKey, askWeather, model, poorKey, refused, spent, toldWeather, tooLong, url, weather } from './ledger.mjs'

const providers = {
  responses: (key) => createOpenAI({ baseURL: `${url}/v1`, apiKey: key })(model),
  chat: (key) => createOpenAI({ baseURL: `${url}/v1`, apiKey: key }).chat(model),
  messages: (key) => createAnthropic({ baseURL: `${url}/v1`, apiKey: key })(model),
  compatible: (key) => createOpenAICompatible({ name: 'engy', baseURL: `${url}/v1`, apiKey: key, includeUsage: true, supportsStructuredOutputs: true })(model),
}

const usageSpent = ({ usage }) =>
  spent({ input: usage.inputTokens, cached: usage.inputTokenDetails?.cacheReadTokens ?? 0, output: usage.outputTokens })

for (const [name, provider] of Object.entries(providers)) {
  const m = provider(apiKey)
  const whole = await generateText({ model: m, prompt: `say something to ${name} [[sim tokens=20]]`, maxRetries: 0 })
  assert.equal(whole.usage.outputTokens, 20)
  usageSpent(whole)

  const stream = streamText({ model: m, prompt: `say something to ${name} [[sim tokens=20]]`, maxRetries: 0 })
  let text = ''
  for await (const piece of stream.textStream) text += piece
  assert.equal(text, whole.text, name)
  assert.equal(await stream.finishReason, 'stop')
  usageSpent({ usage: await stream.usage })

  // Two steps: the tool is called, and what it says is answered with.
  for (const run of [generateText, streamText]) {
    const loop = await run({
      model: m,
      prompt: askWeather,
      tools: { get_weather: tool({ description: weather.description, inputSchema: jsonSchema(weather.parameters), execute: weather.run }) },
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    })
    if (run === streamText) await loop.consumeStream()
    const steps = await loop.steps
    assert.deepEqual(steps.map((s) => s.finishReason), ['tool-calls', 'stop'], name)
    assert.deepEqual(steps[0].toolResults.map((r) => [r.input, r.output]), [[{ city: 'New York' }, toldWeather]])
    assert.equal(await loop.text, toldWeather, name)
    steps.forEach(usageSpent)
  }

  const shaped = await generateText({
    model: m,
    prompt: 'a city and some days',
    output: Output.object({
      schema: jsonSchema({
        type: 'object',
        properties: { city: { type: 'string' }, days: { type: 'integer' } },
        required: ['city', 'days'],
        additionalProperties: false,
      }),
    }),
    maxRetries: 0,
  })
  assert.equal(typeof shaped.output.city, 'string', name)
  assert.ok(Number.isInteger(shaped.output.days), name)
  usageSpent(shaped)

  const status = (code) => (e) => {
    assert.ok(APICallError.isInstance(e), `${name}: ${e}`)
    assert.equal(e.statusCode, code, name)
  }
  await refused(generateText({ model: m, prompt: tooLong, maxRetries: 0 }), status(400))
  await refused(generateText({ model: provider(poorKey), prompt: 'hi', maxRetries: 0 }), status(402))

  // An answer that breaks after its beginning is an error, never a short answer.
  let failure
  const broken = streamText({ model: m, prompt: 'go on [[sim tokens=50 itl=5ms cut=20]]', maxRetries: 0, onError: ({ error }) => (failure = error) })
  await broken.consumeStream()
  assert.ok(failure, `${name} did not notice that its answer broke`)
}
