import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Reporter } from "./measure.ts";

const PEER = fileURLToPath(new URL("../../../shared/peers/go-mutex/run", import.meta.url));

/** What the peer prints, of what is used here. */
interface Report {
  readonly pairsPerSec: number;
  readonly contended: readonly { readonly handoffsPerSec: number }[];
}

/** etcd's own mutex in Go, on a server. */
export class GoMutex {
  readonly #endpoint: string;

  private constructor(endpoint: string) {
    this.#endpoint = endpoint;
  }

  /** Builds it, if it is not built yet. Resolves to the reason where there is none. */
  static async build(endpoint: string): Promise<GoMutex | string> {
    if (!existsSync(PEER)) return `there is no ${PEER}`;
    const go = new GoMutex(endpoint);
    return go.#run(10, 1).then(
      () => go,
      ({ message }: Error) => message,
    );
  }

  pairs(name: string): Reporter {
    return toReporter(name, async () => (await this.#run(200, 1)).pairsPerSec);
  }

  /** A session for each waiter. */
  handOvers(name: string, waiters: number): Reporter {
    return toReporter(
      name,
      async () => {
        const { contended } = await this.#run(Math.max(100, 2 * waiters), waiters);
        return contended[0]?.handoffsPerSec ?? Number.NaN;
      },
      waiters,
    );
  }

  async #run(iterations: number, waiters: number): Promise<Report> {
    const args = [this.#endpoint, String(iterations), String(waiters)];
    const { stdout } = await promisify(execFile)(PEER, args);
    return JSON.parse(stdout);
  }
}

/** It tells rates only; from them follows the mean time that one operation takes. */
function toReporter(name: string, rateOf: () => Promise<number>, clients = 1): Reporter {
  return {
    name,
    async report() {
      const rate = await rateOf();
      return { rate, millis: [(clients / rate) * 1_000], shares: [] };
    },
  };
}
