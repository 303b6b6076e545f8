import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Reporter } from "./measure.ts";

const PEER = fileURLToPath(new URL("../../../shared/peers/go-mutex/run", import.meta.url));

/** The fields of the peer's output that are used here. */
interface Report {
  readonly pairsPerSec: number;
  readonly contended: readonly { readonly handoffsPerSec: number }[];
}

/** etcd's mutex in Go, as a program that measures itself. */
export class GoMutex {
  readonly #endpoint: string;

  private constructor(endpoint: string) {
    this.#endpoint = endpoint;
  }

  /** Builds the program if necessary. Resolves to the reason if it is not available. */
  static async build(endpoint: string): Promise<GoMutex | string> {
    if (!existsSync(PEER)) return `${PEER} does not exist`;
    const go = new GoMutex(endpoint);
    return go.#run(10, 1).then(
      () => go,
      ({ message }: Error) => message,
    );
  }

  pairs(name: string): Reporter {
    return toReporter(name, async () => (await this.#run(200, 1)).pairsPerSec);
  }

  /** Measures hand-overs among waiters, each with its own session. */
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

/** Returns a reporter of rates. The mean time of an operation follows from the rate. */
function toReporter(name: string, rateOf: () => Promise<number>, clients = 1): Reporter {
  return {
    name,
    async report() {
      const rate = await rateOf();
      return { rate, millis: [(clients / rate) * 1_000], shares: [] };
    },
  };
}
