import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { stepClock, steppableClock } from "../../infra/clock/clock.ts";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import { type History, type HistoryEvent, wallClock } from "./history.ts";
import type { Fault } from "./nemesis.ts";
import type { CampaignStore } from "./stores.ts";

interface ClockOptions {
  readonly count: number;

  /** The longest step, forward or back, in milliseconds. */
  readonly span: number;

  /** Gets what contenders read off their clocks. */
  readonly history: History;
  readonly onProgress: (line: string) => void;
}

/** The wall clocks of contenders, where a store lets them differ. */
export class ClientClocks implements AsyncDisposable {
  readonly fault: Fault | string;
  readonly env: (at: number) => NodeJS.ProcessEnv;
  readonly #remove: () => Promise<void>;

  private constructor(
    fault: Fault | string,
    env: (at: number) => NodeJS.ProcessEnv = () => ({}),
    remove: () => Promise<void> = async () => {},
  ) {
    this.fault = fault;
    this.env = env;
    this.#remove = remove;
  }

  static async open(
    { faults }: CampaignStore,
    { count, span, history, onProgress }: ClockOptions,
  ): Promise<ClientClocks> {
    const none = faults["client's clock stepped"];
    if (none !== undefined) return new ClientClocks(none);
    const env = await steppableClock(onProgress).catch((error: Error) => error);
    if (env instanceof Error) return new ClientClocks(env.message);
    const { path, remove } = await temporaryFolder("clocks");
    const clocks = Array.from({ length: count }, (_, at) => ({ folder: join(path, `${at}`) }));
    for (const { folder } of clocks) await mkdir(folder);
    const step: Fault = async ({ random, pause }) => {
      const config = random.pick(clocks);
      const ahead = random.between(-span, span);
      const past = history.events.length;
      await stepClock({ config }, ahead);
      await pause();
      await stepClock({ config }, 0);
      const hasRead = ({ operation, value = 0 }: HistoryEvent) =>
        operation === "clock" && Math.abs(value - wallClock() - ahead) < Math.abs(ahead) / 2;
      return history.events.slice(past).some(hasRead);
    };
    return new ClientClocks(step, (at) => env(clocks[at] ?? { folder: path }), remove);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#remove();
  }
}
