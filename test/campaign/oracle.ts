import { ask, type JsonServer, serveJson } from "../support/json-server.ts";
import type { CampaignViolation } from "./judge.ts";

/** A use of the register. The fence has the form of `Fence.toString()`, which sorts like fences. */
interface Request {
  readonly name: string;
  readonly token: string;
  readonly client: string;

  /** The value to write; undefined for a claim, which reads. */
  readonly value?: number;
}

/** `value` is undefined if the fence was refused. */
interface Answer {
  readonly value?: number;
}

interface Register {
  readonly value: number;
  readonly token: string;
  readonly client: string;
}

/** The resource behind the locks of a campaign: a register for each name, which checks fences as documented. */
export class Oracle implements AsyncDisposable {
  #server: JsonServer | undefined;
  readonly #registers = new Map<string, Register>();
  readonly violations: CampaignViolation[] = [];

  static async open(): Promise<Oracle> {
    const oracle = new Oracle();
    oracle.#server = await serveJson((request: Request) => oracle.answer(request));
    return oracle;
  }

  get url(): string {
    return this.#server?.url ?? "";
  }

  answer({ name, token, client, value }: Request): Answer {
    const last = this.#registers.get(name) ?? { value: 0, token: "", client: "" };
    if (value === undefined) {
      if (token === last.token) {
        this.violations.push(
          `token order: ${client} and ${last.client} have one fence: ${name} ${token}`,
        );
      }
      if (token <= last.token) return {};
      this.#registers.set(name, { value: last.value, token, client });
      return { value: last.value };
    }
    if (last.token !== token || last.client !== client) return {};
    if (value !== last.value + 1) {
      this.violations.push(`lost update: ${client} wrote ${value} over ${last.value} of ${name}`);
    }
    this.#registers.set(name, { value, token, client });
    return { value };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server?.close();
  }
}

/** Asks the oracle, which never fails. */
export function askOracle(oracle: string, request: Request): Promise<Answer> {
  return ask(oracle, request);
}
