import * as z from "zod";
import type { QueueLimits } from "../../../core/journal/limits.ts";
import { race } from "../../../core/lock/abort.ts";
import { bounded } from "../bounded.ts";
import type { AppOptions } from "../options.ts";
import { Problem } from "../problem.ts";
import { type Route, type RouteResponse, route } from "../route.ts";
import { AllLimits, Limits, text } from "../schemas.ts";

/** Routes about the limits of queues. */
export function limitRoutes({ runtime }: AppOptions): readonly Route[] {
  if (!runtime) return [];
  const { journal } = runtime;
  const responseOf = (limits: ReadonlyMap<string, QueueLimits>): RouteResponse => ({
    status: 200,
    body: { queues: Object.fromEntries(limits) },
  });
  const about = {
    path: "/limits",
    tag: "runs",
    responses: { 200: { description: "the limits of all limited queues", schema: AllLimits } },
  } as const;
  return [
    route({
      ...about,
      operation: "readLimits",
      method: "get",
      access: "read",
      summary: "Read the limits of all queues",
      handle: async ({ signal }) => responseOf(await race(journal.limits(), signal)),
    }),
    route({
      ...about,
      operation: "setLimits",
      method: "put",
      path: "/limits/{queue}",
      access: "write",
      summary: "Replace the limits of a queue for all workers, from the next claim on",
      description: "`{}` removes the limits.",
      params: z.object({ queue: text("queue") }),
      body: Limits,
      async handle({ params, body, deadline }) {
        const setting = journal.setLimits(params.queue, body as QueueLimits);
        await bounded(setting.catch(toInvalid), deadline);
        return responseOf(await bounded(journal.limits(), deadline));
      },
    }),
  ];
}

/** Throws a Problem for limits that the journal refuses. */
function toInvalid(error: unknown): never {
  const isInvalid = error instanceof RangeError || error instanceof TypeError;
  throw isInvalid ? new Problem(400, "INVALID", error.message) : error;
}
