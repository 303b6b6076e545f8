import { Admission, costOf, type LimitedQueue, type QueueLimits } from "../../../journal/limits.ts";
import type { WaitingRun } from "../../../journal/turn-order.ts";
import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import type { ItemWrite } from "../client/dynamodb.ts";
import type { ItemKey } from "../client/items.ts";
import { endOf, type JournalContext, readRuns, runningPlace, SHARDS } from "./runs.ts";
import { readItems, readRange, writeAgain } from "./values.ts";

/** The place of all limited queues. */
const LIMITS = "limits";

/** Sets the limits of a queue, or removes them. The use of its rates starts anew. */
export async function setLimits(
  { dynamodb }: JournalContext,
  queue: string,
  limits: QueueLimits,
): Promise<void> {
  const key = placeOf(queue);
  const own = crypto.randomUUID();
  const isUnlimited = Object.values(limits).every((limit) => limit === undefined);
  const text = isUnlimited ? "" : JSON.stringify(limits);
  const what = `the limits of queue ${quote(queue)} were set`;
  await retryUntilKnown(dynamodb.address, what, undefined, async (limit) => {
    const { setting: seen = "" } = (await dynamodb.get(key, limit)) ?? {};
    // A repetition after a lost answer must not forget the claims since.
    if (seen === own) return true;
    const write = {
      key,
      update: "SET #limits = :limits, #setting = :own, #claims = :none, #nextAt = :none",
      // Refused also when it arrives after a newer setting. The item of a queue without limits stays for that.
      when: seen === "" ? "attribute_not_exists(#pk)" : "#setting = :seen",
      values: { limits: text, own, seen, none: 0 },
    };
    return (await dynamodb.write([write], limit)).done || undefined;
  });
  // Those of the setting before have another mark, and count no more. A claim since then has written a new one.
  const rates = await readRange(dynamodb, { pk: ratesOf(queue), from: "\0", to: endOf("") });
  for (const { pk = "", sk = "", setting = "" } of rates) {
    if (setting === own) continue;
    const old = { key: { pk, sk }, when: "#setting = :setting", values: { setting } };
    await writeAgain(dynamodb, [old]);
  }
}

export async function readLimits({
  dynamodb,
}: JournalContext): Promise<ReadonlyMap<string, QueueLimits>> {
  const items = await readRange(dynamodb, { pk: LIMITS, from: "\0", to: endOf("") });
  const limited = items.filter(({ limits }) => limits);
  return new Map(limited.map(({ sk = "", limits = "" }) => [sk, JSON.parse(limits)]));
}

/** A limited queue as it was read, and what the next claim from it writes. */
interface QueueUse {
  readonly limits: QueueLimits;
  readonly setting: string;
  claims: number;
  nextAt: number;
  readonly running: ReadonlyMap<string | undefined, number>;
  readonly keys: Map<string, number>;
}

/** The used share of the limits of some queues. Claims from a queue with limits run one after another. */
export class LimitUse {
  readonly #queues: ReadonlyMap<string, QueueUse>;
  readonly #now: number;

  /** The queues that another claim or another setting has changed since. */
  readonly outdated = new Set<string>();

  constructor(queues: ReadonlyMap<string, QueueUse>, now: number) {
    this.#queues = queues;
    this.#now = now;
  }

  get admission(): Admission {
    const limited = [...this.#queues].map(([queue, use]): [string, LimitedQueue] => {
      const keys = [...use.keys].map(([key, at]): [string, number] => [key, at - this.#now]);
      const { limits, running, nextAt } = use;
      return [
        queue,
        { ...limits, running, aheadBy: nextAt - this.#now, keysAheadBy: new Map(keys) },
      ];
    });
    return new Admission(new Map(limited));
  }

  isLimited(queue: string): boolean {
    return this.#queues.has(queue);
  }

  /** The writes that count a claim. They are refused if another claim or another setting came first. */
  count({ queue, key }: Pick<WaitingRun, "queue" | "key">, now: number): readonly ItemWrite[] {
    const use = this.#queues.get(queue);
    if (!use) return [];
    const { limits, setting, claims } = use;
    const { rate, ratePerKey } = limits;
    const nextAt = rate ? Math.max(use.nextAt, now) + costOf(rate) : use.nextAt;
    const ofKey = key !== undefined && ratePerKey ? key : undefined;
    const keyNextAt =
      ofKey !== undefined && ratePerKey
        ? Math.max(use.keys.get(ofKey) ?? 0, now) + costOf(ratePerKey)
        : 0;
    return [
      {
        key: placeOf(queue),
        update: "SET #claims = :next, #nextAt = :nextAt",
        when: "#setting = :setting AND #claims = :claims",
        values: { setting, claims, next: claims + 1, nextAt },
      },
      ...(ofKey === undefined
        ? []
        : [
            {
              key: { pk: ratesOf(queue), sk: ofKey },
              update: "SET #setting = :setting, #nextAt = :nextAt",
              values: { setting, nextAt: keyNextAt },
            },
          ]),
    ];
  }

  /** Notes that the writes of `count` were done. */
  counted({ queue, key }: Pick<WaitingRun, "queue" | "key">, now: number): void {
    const use = this.#queues.get(queue);
    if (!use) return;
    const { rate, ratePerKey } = use.limits;
    use.claims += 1;
    if (rate) use.nextAt = Math.max(use.nextAt, now) + costOf(rate);
    if (ratePerKey && key !== undefined) {
      use.keys.set(key, Math.max(use.keys.get(key) ?? 0, now) + costOf(ratePerKey));
    }
  }
}

/** Reads what the queues have used. A run whose lease has expired counts no more. */
export async function readUse(
  context: JournalContext,
  queues: readonly string[],
  waiting: readonly WaitingRun[],
): Promise<LimitUse> {
  const { dynamodb, clock } = context;
  // First: a claim since then is refused by the number of claims.
  const items = await readItems(dynamodb, queues.map(placeOf));
  const found = new Map<string, QueueUse>();
  for (const item of items) {
    if (!item?.limits) continue;
    const { sk: queue = "", limits, setting = "", claims = "0", nextAt = "0" } = item;
    const own = waiting.filter((run) => run.queue === queue);
    found.set(queue, {
      limits: JSON.parse(limits),
      setting,
      claims: Number(claims),
      nextAt: Number(nextAt),
      running: await readRunning(context, queue),
      keys: await readRates(context, queue, setting, own),
    });
  }
  return new LimitUse(found, clock.now());
}

async function readRunning(
  context: JournalContext,
  queue: string,
): Promise<ReadonlyMap<string | undefined, number>> {
  const places = await Promise.all(
    SHARDS.map((shard) =>
      readRange(context.dynamodb, { pk: runningPlace(shard, queue), from: "\0", to: endOf("") }),
    ),
  );
  const ids = places.flat().map(({ sk = "" }) => sk);
  const heads = await readRuns(context, ids);
  const now = context.clock.now();
  const running = heads.filter(
    (head) => head.status === "running" && head.queue === queue && (head.dueAt ?? 0) > now,
  );
  return new Map(
    [...Map.groupBy(running, ({ key }) => key)].map(([key, { length }]) => [key, length]),
  );
}

async function readRates(
  { dynamodb }: JournalContext,
  queue: string,
  setting: string,
  waiting: readonly WaitingRun[],
): Promise<Map<string, number>> {
  const keys = [...new Set(waiting.flatMap(({ key }) => key ?? []))];
  const items = await readItems(
    dynamodb,
    keys.map((key) => ({ pk: ratesOf(queue), sk: key })),
  );
  const current = items.flatMap((item) => (item?.setting === setting ? [item] : []));
  return new Map(current.map(({ sk = "", nextAt }) => [sk, Number(nextAt)]));
}

/** Deletes rates of keys that no claim has used in advance. */
export async function purgeRates(context: JournalContext): Promise<void> {
  const { dynamodb, clock } = context;
  for (const queue of (await readLimits(context)).keys()) {
    const rates = await readRange(context.dynamodb, {
      pk: ratesOf(queue),
      from: "\0",
      to: endOf(""),
    });
    for (const { pk = "", sk = "", nextAt = "0" } of rates) {
      if (Number(nextAt) > clock.now()) continue;
      const values = { nextAt: Number(nextAt) };
      await writeAgain(dynamodb, [{ key: { pk, sk }, when: "#nextAt = :nextAt", values }]);
    }
  }
}

function placeOf(queue: string): ItemKey {
  return { pk: LIMITS, sk: queue };
}

function ratesOf(queue: string): string {
  return `rates/${queue}`;
}
