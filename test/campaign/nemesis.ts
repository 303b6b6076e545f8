import type { ChildProcess } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { CampaignStore } from "./stores.ts";

/** The processes that the nemesis may kill and freeze. Both lists change as processes end and start. */
export interface Victims {
  readonly contenders: readonly ChildProcess[];

  /** Processes of `lockstep lock`. */
  readonly commands: readonly ChildProcess[];
}

export interface Nemesis {
  /** How often each fault has happened. */
  readonly counts: Readonly<Record<string, number>>;

  /** Breaks one thing after the other until the signal aborts, then mends everything. */
  run(signal: AbortSignal): Promise<void>;
}

/** Resolves to false when there was nothing to break. */
type Fault = (pick: (below: number) => number) => Promise<boolean>;

/** Faults of the processes and servers of a campaign, at random: one seed gives one sequence of faults. */
export function nemesisOf(
  { wires, nodes, chores }: CampaignStore,
  victims: Victims,
  { seed, ttl }: { readonly seed: number; readonly ttl: number },
): Nemesis {
  const random = xoroshiro128plus(seed);
  const pick = (below: number) => uniformInt(random, 0, below - 1);
  const counts: Record<string, number> = {};

  /** For between half a ttl and two: the lock may have passed to another holder by then. */
  const span = () => ttl / 2 + pick(ttl * 1.5);
  const one = <T>(all: readonly T[]): T | undefined => all[pick(Math.max(1, all.length))];

  const freeze = async (child: ChildProcess | undefined) => {
    if (!child?.kill("SIGSTOP")) return false;
    await sleep(span());
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
      const node = one(nodes);
      if (!node) return false;
      await act(node);
      return true;
    };
  };

  const faults: Readonly<Record<string, Fault>> = {
    "contender killed": async () => one(victims.contenders)?.kill("SIGKILL") ?? false,
    "contender frozen": () => freeze(one(victims.contenders)),
    "lockstep lock killed": async () => one(victims.commands)?.kill("SIGKILL") ?? false,
    "lockstep lock frozen": () => freeze(one(victims.commands)),
    "connections reset": onWires((at) => wires[at]?.reset()),
    "connections dead silently": onWires((at) => wires[at]?.blackhole()),
    "answer lost": onWires((at) => wires[at]?.loseNextAnswer(pick(20))),
    "request lost": onWires((at) => wires[at]?.loseNextRequest(pick(20))),
    "wire cut": onWires(async (at) => {
      wires[at]?.cut();
      await sleep(span());
      wires[at]?.mend();
    }),
    "server killed": onNode(async (node) => {
      await node.kill("SIGKILL");
      await sleep(pick(ttl));
      await node.start();
    }),
    "server frozen": onNode(async (node) => {
      await node.kill("SIGSTOP");
      await sleep(span());
      await node.kill("SIGCONT");
    }),
    ...Object.fromEntries(
      Object.entries(chores).map(([name, chore]) => [
        name,
        async () => {
          // It fails where the server is away just then.
          await chore().catch(() => {});
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
