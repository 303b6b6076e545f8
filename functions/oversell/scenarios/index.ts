import { CLOCK_JUMP } from "./clock-jump.ts";
import { FAILOVER } from "./failover.ts";
import type { ScenarioReport } from "./report.ts";
import { play, type ScenarioOptions } from "./scenario.ts";

export const SCENARIOS = {
  failover: (options: ScenarioOptions) => play(FAILOVER, options),
  "clock-jump": (options: ScenarioOptions) => play(CLOCK_JUMP, options),
} as const satisfies Record<string, (options: ScenarioOptions) => Promise<ScenarioReport>>;

export type ScenarioName = keyof typeof SCENARIOS;
