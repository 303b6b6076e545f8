import { loadIoredis } from "../../../core/stores/redis/client/load-ioredis.ts";
import type { ScenarioReport } from "./report.ts";
import { play, type ScenarioOptions } from "./scenario.ts";

/** The scenarios. Each one is loaded on demand, since it needs the client of its servers. */
export const SCENARIOS = {
  async failover(options: ScenarioOptions) {
    await loadIoredis();
    const { FAILOVER } = await import("./failover.ts");
    return play(FAILOVER, options);
  },

  async "split-brain"(options: ScenarioOptions) {
    await loadIoredis();
    const { SPLIT_BRAIN } = await import("./split-brain.ts");
    return play(SPLIT_BRAIN, options);
  },

  async "clock-jump"(options: ScenarioOptions) {
    await loadIoredis();
    const { CLOCK_JUMP } = await import("./clock-jump.ts");
    return play(CLOCK_JUMP, options);
  },
} satisfies Record<string, (options: ScenarioOptions) => Promise<ScenarioReport>>;

export type ScenarioName = keyof typeof SCENARIOS;
