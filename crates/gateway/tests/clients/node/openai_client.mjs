// The openai library for Node against an OpenAI-compatible server: one function for each scenario.

import { readFileSync } from "node:fs";
import OpenAI, { APIError } from "openai";
import { answered, main, readStream, retried, untilRefused } from "./runner.mjs";

const WEATHER = {
  name: "weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const CHAT_TOOLS = { tools: [{ type: "function", function: WEATHER }], tool_choice: "required" };
const RESPONSE_TOOLS = { tools: [{ type: "function", ...WEATHER }], tool_choice: "required" };
const WITH_USAGE = { stream_options: { include_usage: true } };

async function chat(run, more = {}) {
  const { data, response } = await askChat(run, run.client(), more);
  const choices = data.choices.map((choice) => ({
    index: choice.index,
    text: choice.message.content ?? null,
    role: choice.message.role,
    tool_calls: (choice.message.tool_calls ?? []).map(chatCall),
    finish_reason: choice.finish_reason,
  }));
  return answered({ ...common(data), choices }, response.headers);
}

async function chatStream(run, more = {}) {
  const { data, response } = await askChat(run, run.client(), { stream: true, ...more });
  const chunks = [];
  const broken = await readStream(data, (chunk) => chunks.push(chunk));
  return answered({ ...streamAnswer(chunks), broken }, response.headers);
}

async function responses(run, more = {}) {
  const { data, response } = await askResponses(run, more);
  return answered(responseAnswer(data), response.headers);
}

async function responsesStream(run, more = {}) {
  const { data, response } = await askResponses(run, { stream: true, ...more });
  const events = [];
  const broken = await readStream(data, (event) => events.push(event));
  const ended = events.filter(({ type }) => type === "response.completed" || type === "response.incomplete");
  const answer = {
    events: events.map((event) => event.type),
    numbered_in_order: events.every((event, index) => event.sequence_number === index),
    text: events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join(""),
    ended: ended.map((event) => responseAnswer(event.response)),
    broken,
  };
  return answered(answer, response.headers);
}

/** Without a format the library asks for base64 and decodes it. */
async function embeddings(run, more = {}) {
  const asked = { model: run.options.model, input: [run.options.prompt, "The hills."], ...more };
  const { data, response } = await run.client().embeddings.create(asked).withResponse();
  const vectors = data.data.map(({ index, embedding }) => ({
    index,
    length: embedding.length,
    first: [...embedding.slice(0, 4)].map((number) => Number(number.toFixed(6))),
  }));
  return answered({ model: data.model, vectors, usage: data.usage }, response.headers);
}

async function completions(run) {
  const { data, response } = await askCompletions(run, {});
  const choices = data.choices.map(({ index, text, finish_reason }) => ({ index, text, finish_reason }));
  return answered({ ...common(data), choices }, response.headers);
}

async function completionsStream(run) {
  const { data, response } = await askCompletions(run, { stream: true, ...WITH_USAGE });
  const chunks = [];
  const broken = await readStream(data, (chunk) => chunks.push(chunk));
  const choices = chunks.flatMap((chunk) => chunk.choices);
  const answer = {
    chunks: chunks.length,
    text: choices.map((choice) => choice.text).join(""),
    finish_reasons: choices.map((choice) => choice.finish_reason).filter(Boolean),
    usage: chunks.map((chunk) => chunk.usage).filter(Boolean),
    broken,
  };
  return answered(answer, response.headers);
}

async function models(run) {
  const { data, response } = await run.client().models.list().withResponse();
  return answered({ models: data.data.map((model) => model.id).sort() }, response.headers);
}

async function plainChat(run, client, more = {}) {
  const { data, response } = await askChat(run, client, more);
  return answered(common(data), response.headers);
}

/** With retries allowed, so that the attempts show whether the library tried again. */
function neverFits(run) {
  const content = "sea ".repeat(run.options.longWords);
  return plainChat(run, run.client({ maxRetries: 2 }), { messages: [{ role: "user", content }] });
}

/** Leaves a stream after some chunks; the same client then asks again. */
async function earlyStop(run) {
  const client = run.client();
  const { data: stream } = await askChat(run, client, { stream: true });
  let seen = 0;
  for await (const _ of stream) {
    seen += 1;
    if (seen === run.options.stopAfter) break;
  }
  stream.controller.abort();
  const following = await askChat(run, client, { max_tokens: 1 });
  return answered({ chunks: seen, following: common(following.data) }, following.response.headers);
}

function askChat(run, client, more = {}) {
  const { model, prompt, maxTokens } = run.options;
  const asked = { model, messages: [{ role: "user", content: prompt }], max_tokens: maxTokens, ...more };
  return client.chat.completions.create(asked).withResponse();
}

function askCompletions(run, more) {
  const { model, prompt, maxTokens } = run.options;
  return run.client().completions.create({ model, prompt, max_tokens: maxTokens, ...more }).withResponse();
}

function askResponses(run, more) {
  const { model, prompt, maxTokens } = run.options;
  const asked = { model, input: prompt, max_output_tokens: maxTokens, ...more };
  return run.client().responses.create(asked).withResponse();
}

function common(completion) {
  return {
    object: completion.object,
    model: completion.model,
    has_id: Boolean(completion.id),
    has_created: completion.created !== undefined,
    usage: completion.usage ?? null,
  };
}

function chatCall(call) {
  return { has_id: Boolean(call.id), name: call.function.name, arguments: call.function.arguments };
}

function responseAnswer(response) {
  const calls = response.output.filter((item) => item.type === "function_call");
  return {
    object: response.object,
    model: response.model,
    has_id: Boolean(response.id),
    status: response.status,
    incomplete: response.incomplete_details ?? null,
    text: outputText(response),
    calls: calls.map((item) => ({ has_id: Boolean(item.call_id), name: item.name, arguments: item.arguments })),
    usage: response.usage ?? null,
  };
}

function outputText(response) {
  const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
  return parts.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}

function streamAnswer(chunks) {
  const choices = chunks.flatMap((chunk) => chunk.choices);
  const indexes = [...new Set(choices.map((choice) => choice.index))].sort();
  return {
    chunks: chunks.length,
    objects: [...new Set(chunks.map((chunk) => chunk.object))].sort(),
    ids: new Set(chunks.map((chunk) => chunk.id)).size,
    chunks_without_choices: chunks.filter((chunk) => chunk.choices.length === 0).length,
    choices: indexes.map((index) => streamedChoice(choices.filter((choice) => choice.index === index))),
    usage: chunks.map((chunk) => chunk.usage).filter(Boolean),
  };
}

function streamedChoice(parts) {
  const calls = new Map();
  for (const call of parts.flatMap((part) => part.delta.tool_calls ?? [])) {
    const whole = calls.get(call.index) ?? { has_id: false, name: "", arguments: "" };
    whole.has_id ||= Boolean(call.id);
    whole.name += call.function?.name ?? "";
    whole.arguments += call.function?.arguments ?? "";
    calls.set(call.index, whole);
  }
  return {
    text: parts.map((part) => part.delta.content ?? "").join(""),
    roles: parts.map((part) => part.delta.role).filter(Boolean),
    tool_calls: [...calls.keys()].sort().map((index) => calls.get(index)),
    finish_reasons: parts.map((part) => part.finish_reason).filter(Boolean),
  };
}

const SCENARIOS = {
  chat: (run) => chat(run),
  chat_stream: (run) => chatStream(run),
  chat_stream_usage: (run) => chatStream(run, WITH_USAGE),
  chat_two_choices: (run) => chat(run, { n: 2 }),
  chat_two_choices_stream: (run) => chatStream(run, { n: 2, ...WITH_USAGE }),
  tools: (run) => chat(run, CHAT_TOOLS),
  tools_stream: (run) => chatStream(run, { ...CHAT_TOOLS, ...WITH_USAGE }),
  responses: (run) => responses(run),
  responses_stream: (run) => responsesStream(run),
  response_tools: (run) => responses(run, RESPONSE_TOOLS),
  response_tools_stream: (run) => responsesStream(run, RESPONSE_TOOLS),
  embeddings: (run) => embeddings(run),
  embeddings_float: (run) => embeddings(run, { encoding_format: "float" }),
  completions,
  completions_stream: completionsStream,
  models,
  bad_key: (run) => plainChat(run, run.client({ apiKey: "not-a-key-of-anyone" })),
  unknown_model: (run) => plainChat(run, run.client(), { model: "no-such-model" }),
  never_fits: neverFits,
  until_refused: (run) => untilRefused(run, (client) => askChat(run, client), APIError),
  retry: (run) => retried(run, (client) => askChat(run, client)),
  early_stop: earlyStop,
};

const manifest = new URL("./node_modules/openai/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(manifest, "utf8"));
await main({ name: "openai-node", version, clientClass: OpenAI, errorClass: APIError }, SCENARIOS);
