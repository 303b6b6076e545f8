import { type Etcd, get, isAbsent, type KeyValue, type OpAnswer, put } from "../../etcd/etcd.ts";
import { encodeSegment, nameOf, ownKey, queueOf } from "../../etcd/names.ts";
import type { Backend, Hold, LockRequest } from "../../lock/backend.ts";
import { HIGHEST_GENERATION } from "../../lock/checks.ts";
import { StoreUnavailableError } from "../../lock/errors.ts";
import { formatFence } from "../../lock/fence.ts";
import { holdOnLent, turnInTime } from "../../lock/lent.ts";
import type { LockInfo, StoreTraits } from "../../lock/lock.ts";
import { EtcdHold, leave } from "./hold.ts";
import { hex } from "./lease.ts";
import { Place, spotsOf } from "./place.ts";
import { type LentLease, Sessions } from "./sessions.ts";

export const etcdTraits: StoreTraits = {
  name: "etcd",
  fair: true,
  watches: true,
  serverClock: true,
  shared: true,
  lockDelay: false,
  // etcd counts in whole seconds.
  minTtl: 1_000,
};

export interface BackendOptions {
  /** "" or a text that ends in "/". */
  readonly prefix: string;

  /** What stands in the keys of our locks, for humans. */
  readonly label: string;
  readonly closeEtcd: boolean;
}

/** Locks as places in the queues of Go's mutexes. */
export class EtcdBackend implements Backend {
  readonly traits = etcdTraits;
  readonly #etcd: Etcd;
  readonly #options: BackendOptions;
  readonly #sessions: Sessions;

  constructor(etcd: Etcd, options: BackendOptions) {
    this.#etcd = etcd;
    this.#options = options;
    this.#sessions = new Sessions(etcd);
  }

  acquire(request: LockRequest): Promise<Hold | undefined> {
    return holdOnLent(this.#sessions, request, async (lent) => {
      const place = await this.#enter(request, lent);
      return place && this.#stand(request, lent, place);
    });
  }

  async inspect(name: string): Promise<LockInfo> {
    const queue = { prefix: queueOf(this.#options.prefix, name) };
    const { answers } = await this.#etcd.txn({
      when: [],
      do: [get(queue, { by: "create", limit: 1 }), get(this.#generationKey)],
    });
    const [first, generation] = answers;
    const holder = first?.kvs[0];
    return this.#toInfo(name, holder, (first?.count ?? 0) - 1, toGeneration(generation));
  }

  async list(prefix: string): Promise<readonly LockInfo[]> {
    const start = { prefix: this.#options.prefix + encodeSegment(prefix) };
    const queues = new Map<string, KeyValue[]>();
    for (let after: string | undefined; ; ) {
      const page = get(start, { limit: 1_000, ...(after !== undefined && { after }) });
      const { kvs } = await this.#etcd.range(page);
      for (const kv of kvs) {
        const name = kv.lease === 0n ? undefined : nameOf(this.#options.prefix, kv.key);
        if (name !== undefined) queues.set(name, [...(queues.get(name) ?? []), kv]);
      }
      after = kvs.at(-1)?.key;
      if (kvs.length < 1_000) break;
    }
    const { kvs } = await this.#etcd.range(get(this.#generationKey));
    const generation = toGeneration({ kvs });
    const infos = [...queues].map(([name, keys]) => {
      const [holder] = keys.sort((a, b) => (a.createRevision < b.createRevision ? -1 : 1));
      return this.#toInfo(name, holder, keys.length - 1, generation);
    });
    const held = (await Promise.all(infos)).filter(({ holder }) => holder !== undefined);
    return held.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async raiseGeneration(least: number): Promise<number> {
    const key = this.#generationKey;
    for (;;) {
      const { kvs } = await this.#etcd.range(get(this.#generationKey));
      const [kv] = kvs;
      const generation = Math.max(least, toGeneration({ kvs }) + 1);
      if (generation > HIGHEST_GENERATION) {
        throw new RangeError(`generation must be at most ${HIGHEST_GENERATION}`);
      }
      const unchanged = kv
        ? ({ keys: key, target: "mod", is: "=", than: kv.modRevision } as const)
        : isAbsent(key);
      const { succeeded } = await this.#etcd.txn({
        when: [unchanged],
        do: [put(key, String(generation))],
      });
      if (succeeded) return generation;
    }
  }

  async close(): Promise<void> {
    await this.#sessions.close();
    if (this.#options.closeEtcd) await this.#etcd.close();
  }

  get #generationKey(): string {
    return ownKey(this.#options.prefix, "generation");
  }

  /** A place in line or, where nothing is to be waited for, at its head. */
  #enter({ names, ttl, wait, signal }: LockRequest, lent: LentLease): Promise<Place | undefined> {
    const { held } = lent;
    const queues = names.map((name) => queueOf(this.#options.prefix, name));
    // Never the same twice, so that nobody takes a key of ours for one of theirs; the label is for humans.
    const value = `${this.#options.label}/${crypto.randomUUID()}`;
    const spots = spotsOf(queues, held.id);
    const standing = { spots, lease: held.id, value, ttl };
    const onDoubt = () => lent.condemn(...spots.map(({ key }) => ({ key, value })));
    const entering = { signal, read: get(this.#generationKey), onDoubt };
    return wait > 0
      ? Place.enter(this.#etcd, standing, entering)
      : Place.enterFree(this.#etcd, standing, entering);
  }

  /** Gets to the head of all queues, in time or not at all. */
  async #stand(request: LockRequest, lent: LentLease, place: Place): Promise<Hold | undefined> {
    const isInTime = await turnInTime(
      request,
      (patience) => place.turn(lent.signal, patience),
      () => leave(this.#etcd, place, request, 0).catch(() => lent.condemn(...place.suspects)),
    );
    return isInTime ? this.#hold(request, lent, place) : undefined;
  }

  async #hold(request: LockRequest, lent: LentLease, place: Place): Promise<Hold> {
    const { signal, renew } = request;
    lent.settle();
    // A lock that is not renewed starts with all of its ttl, however long it has waited.
    const isHeld = renew || (await lent.held.renew(signal).catch(() => undefined));
    const generation = toGeneration(place.read);
    const hold = new EtcdHold(this.#etcd, this.#sessions, request, { place, lent, generation });
    if (isHeld && hold.life.remaining() > 0 && !signal.aborted) return hold;
    await hold.release("released").catch(() => {});
    signal.throwIfAborted();
    throw new StoreUnavailableError(this.#etcd.address, "its answer took longer than the ttl");
  }

  async #toInfo(
    name: string,
    holder: KeyValue | undefined,
    waiters: number,
    generation: number,
  ): Promise<LockInfo> {
    const left = holder && (await this.#etcd.timeToLive(holder.lease));
    if (!holder || left === undefined) {
      return { name, holder: undefined, expiresIn: undefined, fence: undefined, waiters: 0 };
    }
    return {
      name,
      holder: holder.value || `lease ${hex(holder.lease)}`,
      expiresIn: left * 1_000,
      fence: formatFence(generation, holder.createRevision),
      waiters,
    };
  }
}

/** What stands in the generation's key; 0 where there is none. */
function toGeneration(read: Pick<OpAnswer, "kvs"> | undefined): number {
  return Number(read?.kvs[0]?.value ?? 0);
}
