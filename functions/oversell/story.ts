import type { Fault } from "./messages.ts";
import { type OversellOptions, type OversellReport, oversell } from "./oversell.ts";
import { isWrong, type StrategyReport } from "./report.ts";

/** A part of the story: the faults of the part before it, and one more. */
export interface StoryPart {
  /** The fault that this part adds. */
  readonly adds: string;
  readonly strategies: readonly StrategyReport[];

  /** The strategies that go wrong in this part, and in no part before it. */
  readonly firstWrong: readonly string[];
}

export interface StoryReport extends Omit<OversellReport, "strategies"> {
  readonly parts: readonly StoryPart[];
}

interface StoryOptions extends OversellOptions {
  /** Called when a part begins. */
  readonly onPart: (adds: string, index: number) => void;
}

/** The fault of the first part, whose observations the caller receives. */
export const FIRST_PART = "slow service";

const PARTS: readonly {
  readonly adds: string;
  readonly faults: readonly (Fault | "duplicates")[];
}[] = [
  { adds: FIRST_PART, faults: [] },
  { adds: "+ freezes", faults: ["freeze"] },
  { adds: "+ kills", faults: ["kill-before", "kill-after"] },
  { adds: "+ repeats", faults: ["duplicates"] },
];

/** The number of parts. */
export const STORY_PARTS = PARTS.length;

/** Replays the story of the incident: an overloaded service under a lock that expires. Then adds the other faults, one by one. */
export async function story({ onPart, ...options }: StoryOptions): Promise<StoryReport> {
  const parts: StoryPart[] = [];
  const present = new Set<Fault | "duplicates">();
  let report: OversellReport | undefined;
  for (const [index, { adds, faults }] of PARTS.entries()) {
    onPart(adds, index);
    for (const fault of faults) present.add(fault);
    const times = (fault: Fault) => (present.has(fault) ? options.faults[fault] : 0);
    report = await oversell({
      ...options,
      isOverloaded: true,
      onObservations: (observations) => index === 0 && options.onObservations?.(observations),
      faults: {
        slow: 0,
        freeze: times("freeze"),
        "kill-before": times("kill-before"),
        "kill-after": times("kill-after"),
      },
      duplicates: present.has("duplicates") ? options.duplicates : 0,
    });
    const { strategies } = report;
    const wrong = strategies.filter(isWrong).map(({ name }) => name);
    const before = new Set(parts.flatMap(({ firstWrong }) => firstWrong));
    parts.push({ adds, strategies, firstWrong: wrong.filter((name) => !before.has(name)) });
  }
  const { strategies: _, ...setting } = report as OversellReport;
  return { ...setting, parts };
}
