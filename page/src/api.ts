// The server, as the page calls it.

export interface Served {
  name: string;
  task: string;
  uses: string[];
  classes: string[];
  languages?: { sources: string[]; targets: string[]; tagged: boolean };
  parameters?: number;
  engine?: string;
  search?: { beam: number };
  loaded: boolean;
}

export interface Output {
  text: string;
  score: number | null;
  log_prob: number | null;
  error?: string;
  words?: { text: string; confidence: number }[];
  alignment?: [source: number, target: number][];
  probabilities?: Record<string, number> | number[];
  labels?: string[];
  fills?: { text: string; probability: number }[];
  hops?: { hop: number; sentence: string; weight: number }[];
}

export interface Ran {
  model: string;
  outputs: Output[][];
  notes: string[];
}

export interface Attention {
  model: string;
  output: string;
  source: string[];
  target: string[];
  weights: Record<string, number[][][]>;
}

/** An answer other than the one hoped for. Status 0: no answer at all. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly retry: number | null = null,
  ) {
    super(message);
  }

  get isOverload(): boolean {
    return this.status === 429 || this.status === 503;
  }
}

const KEY = "regard-key";
let key = sessionStorage.getItem(KEY);

/** Use this key until the tab is closed. */
export function setKey(value: string | null): void {
  key = value;
  if (value === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, value);
}

export function hasKey(): boolean {
  return key !== null;
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  if (key !== null) headers.set("Authorization", `Bearer ${key}`);
  let answer: Response;
  try {
    answer = await fetch(path, { ...init, headers });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Refusal(0, "The server does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  const retry = Number(answer.headers.get("Retry-After"));
  throw new Refusal(answer.status, await readError(answer), retry > 0 ? retry : null);
}

async function readError(answer: Response): Promise<string> {
  try {
    return wordError(await answer.json());
  } catch {
    return `The server answered with status ${answer.status}.`;
  }
}

function wordError(body: { error?: string | { message?: string } }): string {
  const words = typeof body.error === "string" ? body.error : body.error?.message;
  return words === undefined ? "The server refused without a reason." : sentence(words);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, { signal: signal ?? null })).json()) as T;
}

export async function getBlob(path: string): Promise<Blob> {
  return (await ask(path, {})).blob();
}

function postInit(body: unknown, signal?: AbortSignal): RequestInit {
  return {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal: signal ?? null,
  };
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, postInit(body, signal))).json()) as T;
}

/** Server-sent events of an answer, until `[DONE]`. An error among them is thrown. */
export async function* postForEvents<T>(path: string, body: unknown, signal?: AbortSignal): AsyncGenerator<T, void> {
  const answer = await ask(path, postInit(body, signal));
  if (answer.body === null) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Refusal(0, "The connection ended before the answer did.");
    const events = (rest + value).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const found = JSON.parse(data) as { error?: string };
      if (found.error !== undefined) throw new Refusal(503, wordError(found));
      yield found as Awaited<T>;
    }
  }
}

/** With a capital and a full stop. */
function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
