// Runs named scenarios of one client library and prints one JSON object with their results.
//
// Options, output and the shape of a result are those of ../python/runner.py.

import { parseArgs } from "node:util";

const HEADERS = [
  "x-ratelimit-", "ratelimit", "retry-after", "x-should-retry",
  "x-fairlane-", "x-request-id", "content-type",
];

const OPTIONS = {
  "base-url": { type: "string", default: process.env.FAIRLANE_BASE_URL },
  "api-key": { type: "string", default: process.env.FAIRLANE_API_KEY ?? "none" },
  model: { type: "string", default: "sim" },
  prompt: { type: "string", default: "Tell me about the sea." },
  "max-tokens": { type: "string", default: "24" },
  "max-retries": { type: "string", default: "0" },
  header: { type: "string", multiple: true, default: [] },
  requests: { type: "string", default: "50" },
  "stop-after": { type: "string", default: "3" },
  "long-words": { type: "string", default: "50000" },
  "timeout-seconds": { type: "string", default: "60" },
};

/** One scenario's settings and everything that its HTTP requests showed. */
export class Run {
  attempts = [];
  #clientClass;

  constructor(clientClass, options) {
    this.#clientClass = clientClass;
    this.options = options;
  }

  /** The library's own client, watched; retries as the options say unless given. */
  client({ apiKey = this.options.apiKey, maxRetries = this.options.maxRetries } = {}) {
    return new this.#clientClass({
      baseURL: `${this.options.baseUrl.replace(/\/+$/, "")}/v1`,
      apiKey,
      maxRetries,
      defaultHeaders: this.options.headers,
      timeout: this.options.timeoutSeconds * 1000,
      fetch: (url, init) => this.#fetch(url, init),
    });
  }

  async #fetch(url, init) {
    const retryCount = new Headers(init?.headers).get("x-stainless-retry-count");
    const attempt = { sent_ms: milliseconds(), retry_count: retryCount };
    this.attempts.push(attempt);
    const response = await fetch(url, init);
    attempt.answered_ms = milliseconds();
    attempt.status = response.status;
    for (const name of ["retry-after", "retry-after-ms", "x-should-retry"]) {
      attempt[name] = response.headers.get(name);
    }
    return response;
  }
}

/** Runs what the command line names (everything if nothing) and prints the results. */
export async function main(library, scenarios) {
  const options = readOptions(scenarios);
  const results = {};
  for (const name of options.scenarios) {
    const run = new Run(library.clientClass, options);
    const started = milliseconds();
    let result;
    try {
      result = await scenarios[name](run);
    } catch (refusal) {
      if (!(refusal instanceof library.errorClass)) throw refusal;
      result = { error: described(refusal) };
    }
    results[name] = { ...result, attempts: run.attempts, elapsed_ms: milliseconds() - started };
  }
  console.log(JSON.stringify({ client: library.name, version: library.version, results }));
}

function readOptions(scenarios) {
  const { values, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true });
  const unknown = positionals.filter((name) => !(name in scenarios));
  if (!values["base-url"] || unknown.length > 0) {
    console.error(unknown.length > 0 ? `unknown scenario ${unknown.join(", ")}` : "name the server by --base-url");
    console.error(`scenarios: ${Object.keys(scenarios).join(", ")}`);
    process.exit(2);
  }
  return {
    scenarios: positionals.length > 0 ? positionals : Object.keys(scenarios),
    baseUrl: values["base-url"],
    apiKey: values["api-key"],
    model: values.model,
    prompt: values.prompt,
    maxTokens: Number(values["max-tokens"]),
    maxRetries: Number(values["max-retries"]),
    headers: Object.fromEntries(values.header.map((header) => header.split(/=(.*)/s).slice(0, 2))),
    requests: Number(values.requests),
    stopAfter: Number(values["stop-after"]),
    longWords: Number(values["long-words"]),
    timeoutSeconds: Number(values["timeout-seconds"]),
  };
}

/** A result: what the API answered and the headers that matter. */
export function answered(answer, headers) {
  return { answer, headers: toldHeaders(headers) };
}

function toldHeaders(headers) {
  const told = [...headers].filter(([name]) => HEADERS.some((start) => name.startsWith(start)));
  return Object.fromEntries(told);
}

/** A library's exception: its class, and what it carries of the answer. */
export function described(refusal) {
  const classes = [];
  for (let kind = refusal.constructor; kind?.name?.endsWith("Error"); kind = Object.getPrototypeOf(kind)) {
    classes.push(kind.name);
  }
  return {
    class: classes[0] ?? null,
    classes,
    message: refusal.message,
    status: refusal.status ?? null,
    type: refusal.type ?? null,
    code: refusal.code ?? null,
    body: refusal.error ?? null,
    headers: refusal.headers ? toldHeaders(refusal.headers) : {},
  };
}

/** Reads a stream to its end; the class of the exception that broke it, or null. */
export async function readStream(stream, take) {
  try {
    for await (const event of stream) take(event);
  } catch (broken) {
    return broken.constructor.name;
  }
  return null;
}

/** Asks without retries until the API refuses, or the bound is reached. */
export async function untilRefused(run, ask, errorClass) {
  const client = run.client({ maxRetries: 0 });
  for (let succeeded = 0; succeeded < run.options.requests; succeeded += 1) {
    try {
      await ask(client);
    } catch (refusal) {
      if (!(refusal instanceof errorClass)) throw refusal;
      return { answer: { succeeded }, error: described(refusal) };
    }
  }
  return { answer: { succeeded: run.options.requests } };
}

/** Asks with the library's own two retries until one request needed a retry and was answered. */
export async function retried(run, ask) {
  const client = run.client({ maxRetries: 2 });
  for (let asked = 1; asked <= run.options.requests; asked += 1) {
    run.attempts.length = 0;
    const { response } = await ask(client);
    if (run.attempts.length > 1) {
      const answer = { asked, retries_taken: run.attempts.length - 1, waits: waits(run.attempts) };
      return answered(answer, response.headers);
    }
  }
  return { answer: { asked: run.options.requests, retries_taken: 0, waits: [] } };
}

/** For each refused attempt: the wait that it was told and the wait that the library kept. */
function waits(attempts) {
  return attempts.slice(1).map((following, index) => ({
    status: attempts[index].status,
    told_seconds: attempts[index]["retry-after"],
    told_ms: attempts[index]["retry-after-ms"],
    waited_ms: following.sent_ms - attempts[index].answered_ms,
  }));
}

function milliseconds() {
  return Math.floor(performance.now());
}
