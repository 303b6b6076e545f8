import { join } from "node:path";
import { deadline, race } from "../../../core/lock/abort.ts";
import { quote } from "../../../core/lock/errors.ts";
import type { Millis } from "../../../core/lock/time.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { openReady } from "../../../infra/open-ready.ts";
import { redact } from "../../../infra/redact.ts";
import { KINDS, type ServerName } from "../../../infra/servers/kinds.ts";
import { temporaryFolder } from "../../../infra/servers/reap.ts";
import type { Server } from "../../../infra/servers/server.ts";
import { type StartOptions, startServer } from "../../../infra/servers/start.ts";
import { parseStoreUrl } from "../../../infra/store-url.ts";
import { BREAKS, type BreakName, type BreakResult } from "./breaks.ts";
import { type HandOvers, measureHandOvers } from "./hand-overs.ts";

/** A store by name, on servers of its own, or by its URL. */
export type ComparedName = "sqlite" | ServerName | (string & {});

/** The results of a store. Without hand-overs, the store failed before they were measured. */
export interface ComparedStore extends Partial<HandOvers> {
  /** The store's name, or its URL without secrets. */
  readonly store: string;

  /** The version of the servers that the comparison started. */
  readonly version?: string;

  /** What became of a held lock, by event. Empty for a store that is not the comparison's own. */
  readonly breaks: Readonly<Partial<Record<BreakName, BreakResult>>>;

  /** Why the comparison of this store ended before its end. */
  readonly failed?: string;
}

interface CompareOptions {
  readonly stores: readonly ComparedName[];

  /** Called with each step that takes time. */
  readonly onProgress: (step: string) => void;
}

/** The longest comparison of one store: a minute or two on an idle machine. */
const LONGEST: Millis = 600_000;

/**
 * Measures how each store hands a lock over, and breaks the stores that it starts itself. Yields each store when it is
 * done: one that fails does not end the comparison.
 */
export async function* compare({
  stores,
  onProgress,
}: CompareOptions): AsyncGenerator<ComparedStore> {
  for (const name of stores) checkStore(name);
  for (const [i, name] of stores.entries()) {
    yield await compareStore(name, (step) =>
      onProgress(`${i + 1} of ${stores.length}, ${name}: ${step}`),
    );
  }
}

function checkStore(name: string): void {
  if (name === "sqlite" || isServer(name)) return;
  if (name.includes(":")) return void parseStoreUrl(name).network;
  const names = ["sqlite", ...Object.keys(KINDS)].join(", ");
  throw new TypeError(`a compared store is a URL or one of ${names}, not ${quote(name)}`);
}

function isServer(name: string): name is ServerName {
  return Object.hasOwn(KINDS, name);
}

type Tell = (step: string) => void;

type Facts = AsyncGenerator<Partial<ComparedStore>>;

async function compareStore(name: string, tell: Tell): Promise<ComparedStore> {
  const late = () => new Error(`it took longer than ${LONGEST / 60_000} minutes`);
  using limit = deadline(LONGEST, late);
  let known: ComparedStore = { store: redact(name), breaks: {} };
  try {
    for await (const fact of factsOf(name, tell, limit.signal)) known = { ...known, ...fact };
    return known;
  } catch (error) {
    return { ...known, failed: redact((error as Error).message) };
  }
}

function factsOf(name: string, tell: Tell, signal: AbortSignal): Facts {
  if (name === "sqlite") return factsOfFile(tell, signal);
  return isServer(name) ? factsOfServer(name, tell, signal) : factsOfUrl(name, tell, signal);
}

async function* factsOfFile(tell: Tell, signal: AbortSignal): Facts {
  await using folder = await temporaryFolder("compare");
  yield { version: process.versions.sqlite ?? "" };
  yield await race(measure(`sqlite:${join(folder.path, "locks.db")}`, tell), signal);
}

async function* factsOfUrl(url: string, tell: Tell, signal: AbortSignal): Facts {
  yield await race(measure(url, tell), signal);
}

/** Each event breaks servers of its own. Those of work that is given up stop, too, which ends the work. */
async function* factsOfServer(name: ServerName, tell: Tell, signal: AbortSignal): Facts {
  const withServer = async <T>(
    work: (server: Server) => Promise<T>,
    env?: StartOptions["env"],
  ): Promise<T> => {
    await using server = await startServer(name, { onProgress: tell, ...(env && { env }) });
    return await race(work(server), signal);
  };
  yield await withServer(async ({ url, version }) => ({
    version: /\d+\.\d+[\w.]*/.exec(version)?.[0] ?? version,
    ...(await measure(url, tell)),
  }));
  let breaks: ComparedStore["breaks"] = {};
  for (const [event, { appliesTo, env, play }] of Object.entries(BREAKS)) {
    if (!appliesTo(name)) continue;
    tell(event);
    breaks = { ...breaks, [event]: await withServer(play, await env?.(tell)) };
    yield { breaks };
  }
}

async function measure(url: string, tell: Tell): Promise<HandOvers> {
  tell("hands over");
  const opened: AnyStore[] = [];
  try {
    return await measureHandOvers(async () => {
      const store = await openReady(url);
      opened.push(store);
      return store.locks;
    });
  } finally {
    await Promise.all(opened.map((store) => store.close()));
  }
}
