import { join } from "node:path";
import { quote } from "../../../core/lock/errors.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { KINDS, type ServerName } from "../../../infra/servers/kinds.ts";
import { temporaryFolder } from "../../../infra/servers/reap.ts";
import { type StartOptions, startServer } from "../../../infra/servers/start.ts";
import { BREAKS, type BreakName, type BreakResult } from "./breaks.ts";
import { type HandOvers, measureHandOvers } from "./hand-overs.ts";
import { openReady } from "./open-ready.ts";

/** A store by name, on servers of its own, or by its URL. */
export type ComparedName = "sqlite" | ServerName | (string & {});

export interface ComparedStore extends HandOvers {
  /** The store's name, or its URL without secrets. */
  readonly store: string;

  /** What became of a held lock, by event. Empty for a store that is not the comparison's own. */
  readonly breaks: Readonly<Partial<Record<BreakName, BreakResult>>>;
}

export interface CompareOptions {
  readonly stores: readonly ComparedName[];

  /** Called with each step that takes time. */
  readonly onProgress: (step: string) => void;
}

/** Measures how each store hands a lock over. Breaks the stores that the comparison starts itself. */
export async function compare({
  stores,
  onProgress,
}: CompareOptions): Promise<readonly ComparedStore[]> {
  for (const name of stores) checkStore(name);
  const compared: ComparedStore[] = [];
  for (const name of stores) {
    const tell = (step: string) => onProgress(`${name}: ${step}`);
    if (name === "sqlite") compared.push(await measureFile(tell));
    else if (isServer(name)) compared.push(await breakServer(name, tell));
    else compared.push(await measure(name, name, tell));
  }
  return compared;
}

function checkStore(name: string): void {
  if (name === "sqlite" || isServer(name) || name.includes(":")) return;
  const names = ["sqlite", ...Object.keys(KINDS)].join(", ");
  throw new TypeError(`a compared store is a URL or one of ${names}, not ${quote(name)}`);
}

function isServer(name: string): name is ServerName {
  return Object.hasOwn(KINDS, name);
}

type Tell = (step: string) => void;

async function measureFile(tell: Tell): Promise<ComparedStore> {
  await using folder = await temporaryFolder("compare");
  return await measure("sqlite", `sqlite:${join(folder.path, "locks.db")}`, tell);
}

async function measure(name: string, url: string, tell: Tell): Promise<ComparedStore> {
  tell("hands over");
  const opened: AnyStore[] = [];
  try {
    const measured = await measureHandOvers(async () => {
      const store = await openReady(url);
      opened.push(store);
      return store.locks;
    });
    return { store: name === url ? (opened[0]?.url ?? name) : name, ...measured, breaks: {} };
  } finally {
    await Promise.all(opened.map((store) => store.close()));
  }
}

/** Each event breaks servers of its own. */
async function breakServer(name: ServerName, tell: Tell): Promise<ComparedStore> {
  const withServer = async <T>(
    work: (server: Awaited<ReturnType<typeof startServer>>) => Promise<T>,
    env?: StartOptions["env"],
  ): Promise<T> => {
    await using server = await startServer(name, { onProgress: tell, ...(env && { env }) });
    return await work(server);
  };
  const measured = await withServer(({ url }) => measure(name, url, tell));
  const breaks: Partial<Record<BreakName, BreakResult>> = {};
  for (const [event, { appliesTo, env, play }] of Object.entries(BREAKS)) {
    if (!appliesTo(name)) continue;
    tell(event);
    breaks[event as BreakName] = await withServer(play, await env?.(tell));
  }
  return { ...measured, breaks };
}
