import { Cron } from "croner";
import { checkOneOf } from "../lock/checks.ts";
import { quote } from "../lock/errors.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import type { Millis } from "../lock/time.ts";

export interface ScheduleOptions<Input> {
  /** Returns the input of a slot's run. The input depends on the slot alone: several processes may start the slot. */
  readonly input: (slot: Date) => Input;

  /** The time zone of the pattern, by its IANA name, such as "Europe/Berlin". Default "UTC". */
  readonly timezone?: string;

  /**
   * The slots that are started late, after a time without workers and sweeps: the last one (default), all (the last
   * 1,000 at most), or none. With `none`, a slot is still started in its first 5 minutes: sweeps come in intervals.
   */
  readonly catchUp?: "last" | "all" | "none";
}

const SCHEDULE_OPTIONS = {
  input: true,
  timezone: true,
  catchUp: true,
} satisfies OptionNames<ScheduleOptions<unknown>>;

const MOST_SLOTS = 1_000;

/** Longer than the pause between two sweeps. */
const ON_TIME: Millis = 300_000;

const EXAMPLE = 'new Schedule("@daily", { input: (slot) => … })';

/**
 * The slots of a workflow by a cron pattern of five fields, or a nickname such as "@daily".
 *
 * A pattern with one minute and one hour has one slot on each of its days: a time that is skipped when clocks go forward
 * comes right after the gap, and a time that occurs twice counts once. Slots of other patterns are skipped in the gap,
 * and occur twice when clocks go back.
 */
export class Schedule<Input> {
  /** Returns the input of a slot's run. */
  readonly input: (slot: Date) => Input;

  /**
   * The pattern and its time zone: schedules with equal ones have the same slots.
   *
   * @internal
   */
  readonly slots: string;
  readonly #cron: Cron;
  readonly #catchUp: "last" | "all" | "none";

  /** Throws a TypeError that names the pattern, the time zone or the option. */
  constructor(pattern: string, options: ScheduleOptions<Input>) {
    if (typeof options?.input !== "function") {
      throw new TypeError(`a schedule needs an input, such as ${EXAMPLE}`);
    }
    checkOptionNames("Schedule", options, SCHEDULE_OPTIONS);
    const { input, timezone = "UTC", catchUp = "last" } = options;
    checkOneOf("catchUp", catchUp, ["last", "all", "none"]);
    checkTimezone(timezone);
    this.#cron = parse(pattern, timezone);
    this.slots = `${pattern} ${timezone}`;
    this.#catchUp = catchUp;
    this.input = input;
  }

  /**
   * Returns the slots after `from` and up to `to` that are to be started, the oldest first.
   *
   * @internal
   */
  missed(from: Millis, to: Millis): readonly Date[] {
    const oldest = this.#catchUp === "none" ? Math.max(from, to - ON_TIME) : from;
    const most = this.#catchUp === "all" ? MOST_SLOTS : 1;
    const slots: Date[] = [];
    for (let before = to + 1; slots.length < most; ) {
      const [slot] = this.#cron.previousRuns(1, new Date(before));
      if (!slot || slot.getTime() <= oldest) break;
      slots.push(slot);
      before = slot.getTime();
    }
    return slots.reverse();
  }

  /**
   * Returns the first slot after `at`.
   *
   * @internal
   */
  next(at: Millis): Millis {
    return this.#cron.nextRun(new Date(at))?.getTime() ?? Number.POSITIVE_INFINITY;
  }
}

function checkTimezone(timezone: string): void {
  try {
    new Intl.DateTimeFormat("en", { timeZone: timezone });
  } catch {
    throw new TypeError(`there is no time zone ${quote(String(timezone))}; use an IANA name`);
  }
}

function parse(pattern: string, timezone: string): Cron {
  try {
    const cron = new Cron(pattern, { mode: "5-part", timezone });
    // A date in place of a pattern has one slot. A pattern such as "0 0 30 2 *" has none.
    if (cron.getPattern() !== undefined && cron.nextRun()) return cron;
  } catch (cause) {
    throw new TypeError(`${quote(String(pattern))} is not a cron pattern: ${messageOf(cause)}`, {
      cause,
    });
  }
  throw new TypeError(`${quote(pattern)} is not a cron pattern that occurs again and again`);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
