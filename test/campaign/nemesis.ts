import type { ChildProcess } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { CampaignStore } from "./stores.ts";

/** The processes that the nemesis kills and freezes. Both lists change as processes end and start. */
export interface Victims {
  readonly contenders: readonly ChildProcess[];

  /** Processes of `lockstep lock`. */
  readonly commands: readonly ChildProcess[];
}

/** Injects faults; the term is Jepsen's. */
export interface Nemesis {
  /** Injected faults, by name. */
  readonly counts: Readonly<Record<string, number>>;

  /** Injects one fault after another until the signal aborts, then repairs the wires. */
  run(signal: AbortSignal): Promise<void>;
}

/** Injects a fault. Resolves to false if it had no target. */
type Fault = (pick: (below: number) => number) => Promise<boolean>;

/** Creates a nemesis for the processes and servers of a campaign. A seed determines its sequence of faults. */
export function createNemesis(
  { wires, nodes, maintenance }: CampaignStore,
  victims: Victims,
  { seed, ttl }: { readonly seed: number; readonly ttl: number },
): Nemesis {
  const random = xoroshiro128plus(seed);
  const pick = (below: number) => uniformInt(random, 0, below - 1);
  const counts: Record<string, number> = {};

  /** Between half a ttl and two ttls: the lock may pass to another holder meanwhile. */
  const faultMillis = () => ttl / 2 + pick(ttl * 1.5);
  const pickOne = <T>(all: readonly T[]): T | undefined => all[pick(Math.max(1, all.length))];

  const freeze = async (child: ChildProcess | undefined) => {
    if (!child?.kill("SIGSTOP")) return false;
    await sleep(faultMillis());
    child.kill("SIGCONT");
    return true;
  };
  const onWires = (act: (at: number) => unknown): Fault => {
    return async () => {
      if (wires.length === 0) return false;
      await act(pick(wires.length));
      return true;
    };
  };
  const onNode = (act: (node: CampaignStore["nodes"][number]) => Promise<void>): Fault => {
    return async () => {
      const node = pickOne(nodes);
      if (!node) return false;
      await act(node);
      return true;
    };
  };

  const faults: Readonly<Record<string, Fault>> = {
    "contender killed": async () => pickOne(victims.contenders)?.kill("SIGKILL") ?? false,
    "contender frozen": () => freeze(pickOne(victims.contenders)),
    "lockstep lock killed": async () => pickOne(victims.commands)?.kill("SIGKILL") ?? false,
    "lockstep lock frozen": () => freeze(pickOne(victims.commands)),
    "connections reset": onWires((at) => wires[at]?.reset()),
    "connections dead silently": onWires((at) => wires[at]?.blackhole()),
    "answer lost": onWires((at) => wires[at]?.loseNextAnswer(pick(20))),
    "request lost": onWires((at) => wires[at]?.loseNextRequest(pick(20))),
    "wire cut": onWires(async (at) => {
      wires[at]?.cut();
      await sleep(faultMillis());
      wires[at]?.mend();
    }),
    "server killed": onNode(async (node) => {
      await node.kill("SIGKILL");
      await sleep(pick(ttl));
      await node.start();
    }),
    "server frozen": onNode(async (node) => {
      await node.kill("SIGSTOP");
      await sleep(faultMillis());
      await node.kill("SIGCONT");
    }),
    ...Object.fromEntries(
      Object.entries(maintenance).map(([name, task]) => [
        name,
        async () => {
          // It fails if the server is down.
          await task().catch(() => {});
          return true;
        },
      ]),
    ),
  };

  return {
    counts,
    async run(signal) {
      const names = Object.keys(faults);
      while (!signal.aborted) {
        const name = names[pick(names.length)] as string;
        if (await faults[name]?.(pick)) counts[name] = (counts[name] ?? 0) + 1;
        await sleep(pick(ttl));
      }
      for (const wire of wires) {
        wire.loseNothing();
        wire.mend();
      }
    },
  };
}
