import type { Poison } from "../queue/options.ts";
import { sqs } from "../queue/sqs.ts";
import { services } from "./services.ts";

export const queue = sqs();

/** Hands messages over to the queue of the environment, each with the code of what is wrong with it. */
export const poisonQueue = {
  async to({ record, error }: Poison): Promise<void> {
    const { environment } = await services();
    if (!environment.poisonQueue) throw new TypeError("LOCKSTEP_POISON_QUEUE is missing");
    const { code } = Object(error) as { readonly code?: unknown };
    await queue.forward(environment.poisonQueue, record, { code: String(code ?? "INVALID") });
  },
};
