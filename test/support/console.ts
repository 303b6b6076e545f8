import type { TestContext } from "vitest";
import { createRuntime } from "../../core/steps/runtime.ts";
import { type ConsoleOptions, createConsole } from "../../functions/console/console.ts";
import { pageFiles } from "../../functions/console/page-files.ts";
import { serveHttp } from "../../functions/http/server.ts";
import { type AnyStore, open } from "../../infra/open.ts";

/** Serves a console for a store until the test ends, on this port. Default: any free port. */
export async function servingConsole(
  { onTestFinished }: Pick<TestContext, "onTestFinished">,
  url: string,
  { port = 0, ...options }: Partial<ConsoleOptions> & { readonly port?: number } = {},
) {
  const store: AnyStore = await open(url);
  const { locks } = store;
  const app = createConsole({
    addresses: { store: store.url, locks: store.url },
    locks,
    inventory: store.has("inventory") ? store.inventory : undefined,
    runtime: store.has("journal") ? createRuntime({ journal: store.journal, locks }) : undefined,
    page: await pageFiles(),
    ...{ token: undefined, isLocal: true, readOnly: false, isDev: false },
    onError() {},
    ...options,
  });
  const server = await serveHttp(app, { port });
  let closed: Promise<void> | undefined;
  const close = () => {
    closed ??= server.close(0).then(() => store.close());
    return closed;
  };
  onTestFinished(close);
  return { store, url: server.url, close };
}

/** Resolves to what a page of this console sends with its actions. */
export async function servedBy(url: string): Promise<string> {
  const headers = { "lockstep-console": "1" };
  const info = await fetch(`${url}/console/api/info`, { headers });
  return info.headers.get("lockstep-console") ?? "";
}

/** Asks for an action, as the console's page or as one that `served` another console; resolves to what was done, or to the code of the refusal. */
export async function act(
  url: string,
  action: string,
  body: object,
  served?: string,
): Promise<string> {
  const headers = {
    "lockstep-console": served ?? (await servedBy(url)),
    "content-type": "application/json",
    origin: url,
  };
  const response = await fetch(`${url}/console/api/actions/${action}`, {
    method: "POST",
    headers,
    body: JSON.stringify(body),
  });
  const { done, code } = (await response.json()) as {
    readonly done?: string;
    readonly code: string;
  };
  return done ?? code;
}
