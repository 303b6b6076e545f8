import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { DURABLE_REDIS } from "../campaign/stores.ts";
import { Random } from "../simulation/random.ts";
import { until } from "../support/until.ts";
import {
  droppedBy,
  type Fault,
  OPERATION_FAULTS,
  type OperationFaultName,
  type Victim,
} from "./faults.ts";
import type { ServiceOptions } from "./idempotent-service.ts";
import { Ledger } from "./ledger.ts";
import { Processes } from "./processes.ts";
import { committedEffects, SERVICES, type Service, type ServiceName } from "./services.ts";
import { inSeededOrder, STUCK, type TrialOptions } from "./trial.ts";

/** What became of the operations that one fault has met. */
export interface OperationOutcome {
  readonly fault: OperationFaultName;
  readonly rounds: number;

  /** Operations whose effect was there more than once. */
  readonly twice: number;

  /** Operations whose effect was never there. */
  readonly lost: number;

  /** Operations whose answer was another one at the third delivery than at the second. */
  readonly overwritten: number;

  /** Operations that were not answered within 30 s. */
  readonly stuck: number;

  /** The longest time from the first delivery to the answer of the second, in milliseconds. */
  readonly longestWait: number;

  /** Executors that ended by an error that nothing could catch. */
  readonly crashed: number;
}

export interface ServiceTrial {
  readonly service: string;
  readonly package: string;
  readonly usage: string;
  readonly server: string;
  readonly outcomes: readonly OperationOutcome[];
}

const EXECUTORS = 3;
const EXECUTOR = fileURLToPath(new URL("./executor.ts", import.meta.url));

/** How long a queue waits before it delivers an operation again, in milliseconds. */
const REDELIVERY = 100;

/** Delivers operations to two executors, injects each fault into the first one or into the server, and counts the effects. */
export async function tryService(
  name: ServiceName,
  options: TrialOptions<OperationFaultName>,
): Promise<ServiceTrial> {
  const { rounds, ttl, seed, onProgress } = options;
  const service: Service = SERVICES[name];
  const random = new Random(seed);
  const args = service.server === "redis" ? DURABLE_REDIS : [];
  await using server = await startServer(service.server, { onProgress, args });
  await service.prepare?.(server.url);
  const ledger = await Ledger.open();
  using _ = { [Symbol.dispose]: () => ledger.close() };
  await using processes = await Processes.start({
    count: EXECUTORS,
    script: EXECUTOR,
    server,
    argsOf({ url }, slot) {
      const serviceOptions: ServiceOptions = { url, ttl, executor: `executor-${slot}` };
      return [name, JSON.stringify(serviceOptions), ledger.url];
    },
  });
  const executors = new Executors(processes);
  const outcomes = await inSeededOrder(
    options,
    random,
    async (fault): Promise<OperationOutcome> => {
      processes.crashed = 0;
      const results: Result[] = [];
      for (let round = 1; round <= rounds; round += 1) {
        onProgress(`${name}: ${fault}, ${round} of ${rounds}`);
        const operation = `${fault.replaceAll(" ", "-")}-${round}`;
        const first = random.below(EXECUTORS);
        const meeting = { operation, first, executors, server, ledger, ttl };
        const answers = await meet(OPERATION_FAULTS[fault], meeting);
        const effects = service.isTransacted
          ? await committedEffects(server.url, operation)
          : ledger.effectsOf(operation);
        results.push({ ...answers, effects });
      }
      return { fault, rounds, ...countsOf(results), crashed: processes.crashed };
    },
  );
  return {
    service: name,
    package: service.package ?? "this package",
    usage: service.usage,
    server: server.version,
    outcomes,
  };
}

interface Answers {
  /** Receipts; undefined without an answer in time. */
  readonly second: string | undefined;
  readonly third: string | undefined;

  /** In milliseconds. */
  readonly waited: number;
}

interface Result extends Answers {
  readonly effects: number;
}

function countsOf(results: readonly Result[]) {
  const count = (is: (result: Result) => boolean) => results.filter(is).length;
  const isAnswered = ({ second, third }: Result) => second !== undefined && third !== undefined;
  return {
    twice: count(({ effects }) => effects > 1),
    lost: count(({ effects }) => effects === 0),
    overwritten: count((result) => isAnswered(result) && result.second !== result.third),
    stuck: count((result) => !isAnswered(result)),
    longestWait: Math.round(Math.max(...results.map(({ waited }) => waited))),
  };
}

interface Meeting {
  readonly operation: string;

  /** The slot of the first executor. */
  readonly first: number;
  readonly executors: Executors;
  readonly server: Server;
  readonly ledger: Ledger;
  readonly ttl: number;
}

/** Delivers an operation to the first executor, to the second one once the fault has begun, and to the third one at the end. */
async function meet(
  { at, work, lasts, begin, end }: Fault,
  { operation, first, executors, server, ledger, ttl }: Meeting,
): Promise<Answers> {
  await executors.warmUp(operation);
  let victim: Victim | undefined;
  const met = ledger.ambush.lay({
    at,
    work: work * ttl,
    begin(pid) {
      const executor = executors.processes.byPid(pid);
      const [node] = server.nodes;
      if (!executor || !node) return;
      victim = { ...executor, node, dropped: droppedBy(executor.wires) };
      begin(victim);
    },
  });
  const startedAt = performance.now();
  const own = executors.deliverUntilAnswered(first, operation);
  await Promise.race([met, own]);
  const another = executors.deliverUntilAnswered((first + 1) % EXECUTORS, operation);
  const answered = another.then((receipt) => {
    return { second: receipt, waited: performance.now() - startedAt };
  });
  await sleep(lasts * ttl);
  if (!victim) throw new Error(`the fault met no executor of ${operation}`);
  await end?.(victim);
  // The first executor ends its late execution before the third delivery.
  await own;
  const { second, waited } = await answered;
  const third = await executors.deliverUntilAnswered((first + 2) % EXECUTORS, operation);
  return { second, third, waited };
}

/** Delivers operations to executors, as a queue does. */
class Executors {
  readonly processes: Processes;

  constructor(processes: Processes) {
    this.processes = processes;
  }

  /** Resolves to the receipt; undefined if the executor rejects the operation, or ends. */
  async deliver(slot: number, operation: string): Promise<string | undefined> {
    await until(() => this.processes.at(slot) !== undefined, STUCK);
    const { child } = this.processes.at(slot) ?? {};
    if (!child) return undefined;
    const answered = Promise.withResolvers<string | undefined>();
    const listen = (message: unknown) => {
      const answer = message as { readonly operation: string; readonly receipt?: string };
      if (answer.operation === operation) answered.resolve(answer.receipt);
    };
    const end = () => answered.resolve(undefined);
    child.on("message", listen).once("exit", end);
    child.send(operation, (error) => {
      if (error) end();
    });
    try {
      return await answered.promise;
    } finally {
      child.off("message", listen).off("exit", end);
    }
  }

  /** Resolves when each executor has answered an operation of its own: a wait must not include the start of a process. */
  async warmUp(operation: string): Promise<void> {
    const slots = Array.from({ length: EXECUTORS }, (_, slot) => slot);
    await Promise.all(
      slots.map((slot) => this.deliverUntilAnswered(slot, `${operation}-warm-up-${slot}`)),
    );
  }

  /** Delivers the operation until it is answered; for 30 s at most. */
  async deliverUntilAnswered(slot: number, operation: string): Promise<string | undefined> {
    const over = sleep(STUCK, "over" as const, { ref: false });
    for (;;) {
      const answer = await Promise.race([this.deliver(slot, operation), over]);
      if (answer === "over") return undefined;
      if (answer !== undefined) return answer;
      if ((await Promise.race([sleep(REDELIVERY), over])) === "over") return undefined;
    }
  }
}
