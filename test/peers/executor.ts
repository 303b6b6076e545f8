import { setTimeout as sleep } from "node:timers/promises";
import type { Execution } from "./idempotent-service.ts";
import { send } from "./ledger.ts";
import { SERVICES, type Service, type ServiceName } from "./services.ts";

/** executor SERVICE OPTIONS LEDGER: executes each operation that it is sent, and answers with the receipt, if any. */
const [name = "", options = "", ledger = ""] = process.argv.slice(2);
const { pid } = process;
let executions = 0;

const execution: Execution = {
  async charge(operation, fence) {
    const fenced = fence === undefined ? {} : { fence };
    const receipt = await begin(operation, fenced);
    await send(ledger, { type: "effect", pid, operation, receipt, ...fenced });
    return receipt;
  },
  async chargeWithin(operation, write) {
    const receipt = await begin(operation);
    await write(receipt);
    await send(ledger, { type: "effect", pid, operation, receipt, isTransacted: true });
    return receipt;
  },
};

const { open }: Service = SERVICES[name as ServiceName];
const service = await open(JSON.parse(options), execution);
process.on("message", async (operation: string) => {
  // An error says that another process executes the operation, or is an answer to a fault.
  const receipt = await service.deliver(operation).catch(() => undefined);
  process.send?.({ operation, receipt });
});

async function begin(operation: string, fenced: { readonly fence?: string } = {}): Promise<string> {
  executions += 1;
  const receipt = `${pid}-${executions}`;
  const { work } = await send(ledger, { type: "begin", pid, operation, ...fenced });
  await sleep(work);
  return receipt;
}
