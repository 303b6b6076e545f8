import type { ServerName } from "../../../infra/servers/kinds.ts";
import type { ServerNode } from "../../../infra/servers/server.ts";
import { type StartOptions, startServer } from "../../../infra/servers/start.ts";
import type { ScenarioReport, VariantReport } from "./report.ts";
import { type Guard, RESOURCE, type ScenarioShop, withScenarioShop } from "./scenario-shop.ts";

export interface ScenarioOptions {
  /** Units in stock. */
  readonly stock: number;

  /** Called with each step that takes time. */
  readonly onProgress: (step: string) => void;
}

/** A way to guard the stock, with an explanation of its result. */
export interface Variant {
  readonly name: string;
  readonly guard: Guard;
  readonly why: string;
}

export interface Scenario<V extends Variant> {
  readonly name: string;
  readonly story: string;
  readonly server: ServerName;

  /** Returns the environment of the server processes. */
  env?(onProgress: ScenarioOptions["onProgress"]): Promise<NonNullable<StartOptions["env"]>>;
  readonly variants: readonly V[];

  /** Acquires the shop's lock, breaks the servers, and acquires the lock again with a second client. */
  play(variant: V, shop: ScenarioShop, nodes: readonly ServerNode[]): Promise<void>;
}

/** Plays all variants in turn, each on new servers. Holders sell to the end, even after losing their locks. */
export async function play<V extends Variant>(
  scenario: Scenario<V>,
  { stock, onProgress }: ScenarioOptions,
): Promise<ScenarioReport> {
  const env = (await scenario.env?.(onProgress)) ?? (() => ({}));
  const variants: VariantReport[] = [];
  for (const variant of scenario.variants) {
    onProgress(variant.name);
    const server = await startServer(scenario.server, { env, onProgress });
    try {
      variants.push(await playOne(scenario, variant, stock, server.nodes));
    } finally {
      await server.stop();
    }
  }
  const { name, story } = scenario;
  return { scenario: name, story, resource: RESOURCE, stock, variants };
}

function playOne<V extends Variant>(
  scenario: Scenario<V>,
  variant: V,
  stock: number,
  nodes: readonly ServerNode[],
): Promise<VariantReport> {
  const { name, guard, why } = variant;
  return withScenarioShop(guard, stock, async (shop) => {
    await scenario.play(variant, shop, nodes);
    return { name, claimsSafe: guard === "fenced", ...(await shop.sell()), why };
  });
}
