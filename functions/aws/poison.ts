import type { PoisonMessage } from "../lambda/queue/options.ts";
import { sqs } from "../lambda/queue/sqs.ts";
import { services } from "./services.ts";

export const queue = sqs();

/** Forwards messages to the poison queue of the environment, each with the code of its error. */
export const poisonQueue = {
  async to({ record, error }: PoisonMessage): Promise<void> {
    const { environment } = await services();
    if (!environment.poisonQueue)
      throw new TypeError("the environment variable LOCKSTEP_POISON_QUEUE is missing");
    const { code } = Object(error) as { readonly code?: unknown };
    await queue.forward(environment.poisonQueue, record, { code: String(code ?? "INVALID") });
  },
};
