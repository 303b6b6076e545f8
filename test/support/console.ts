import type { TestContext } from "vitest";
import { createRuntime } from "../../core/steps/runtime.ts";
import { type ConsoleOptions, createConsole } from "../../functions/console/console.ts";
import { pageFiles } from "../../functions/console/page-files.ts";
import { serveHttp } from "../../functions/http/server.ts";
import { type AnyStore, open } from "../../infra/open.ts";

/** Serves a console for a store until the test ends. */
export async function servingConsole(
  { onTestFinished }: Pick<TestContext, "onTestFinished">,
  url: string,
  options: Partial<ConsoleOptions> = {},
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
  const server = await serveHttp(app);
  onTestFinished(async () => {
    await server.close(0);
    await store.close();
  });
  return { store, url: server.url };
}

/** Asks for an action; resolves to what was done, or to the code of the refusal. */
export async function act(url: string, action: string, body: object): Promise<string> {
  const response = await fetch(`${url}/console/api/actions/${action}`, {
    method: "POST",
    headers: { "lockstep-console": "1", "content-type": "application/json", origin: url },
    body: JSON.stringify(body),
  });
  const { done, code } = (await response.json()) as {
    readonly done?: string;
    readonly code: string;
  };
  return done ?? code;
}
