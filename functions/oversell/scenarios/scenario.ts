import type { ServerName } from "../../../infra/servers/kinds.ts";
import type { ServerNode } from "../../../infra/servers/node.ts";
import { type StartOptions, startServer } from "../../../infra/servers/start.ts";
import type { ScenarioReport, VariantReport } from "./report.ts";
import { type Guard, RESOURCE, type Stand, withStand } from "./stand.ts";

export interface ScenarioOptions {
  /** Units there are. */
  readonly stock: number;

  /** Told about what takes long. */
  readonly onProgress: (step: string) => void;
}

/** One way to guard the stock, and what is said of it. */
export interface Variant {
  readonly name: string;
  readonly guard: Guard;
  readonly why: string;
}

export interface Scenario<V extends Variant> {
  readonly name: string;
  readonly story: string;
  readonly server: ServerName;

  /** The environment of the server's processes. */
  env?(onProgress: ScenarioOptions["onProgress"]): Promise<NonNullable<StartOptions["env"]>>;
  readonly variants: readonly V[];

  /** On servers of its own: lets somebody take the lock of the stand, breaks the servers, and lets somebody else. */
  play(variant: V, stand: Stand, nodes: readonly ServerNode[]): Promise<void>;
}

/** Plays all variants, one after the other. Their holders sell to the end, whatever has become of their locks. */
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
  return withStand(guard, stock, async (stand) => {
    await scenario.play(variant, stand, nodes);
    return { name, claimsSafe: guard === "fenced", ...(await stand.sell()), why };
  });
}
