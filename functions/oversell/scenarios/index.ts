import { load } from "../../../infra/load.ts";
import type { ScenarioReport } from "./report.ts";
import { play, type ScenarioOptions } from "./scenario.ts";

/** Each of them is loaded when it is asked for: it needs the client of its servers. */
export const SCENARIOS = {
  async failover(options: ScenarioOptions) {
    const { FAILOVER } = await load("ioredis", () => import("./failover.ts"));
    return play(FAILOVER, options);
  },

  async "clock-jump"(options: ScenarioOptions) {
    const { CLOCK_JUMP } = await load("ioredis", () => import("./clock-jump.ts"));
    return play(CLOCK_JUMP, options);
  },
} satisfies Record<string, (options: ScenarioOptions) => Promise<ScenarioReport>>;

export type ScenarioName = keyof typeof SCENARIOS;
