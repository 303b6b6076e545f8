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
  const read = async (signal: AbortSignal): Promise<RouteResponse> => ({
    status: 200,
    body: { queues: Object.fromEntries(await race(journal.limits(), signal)) },
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
      handle: ({ signal }) => read(signal),
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
      async handle({ params, body, signal, deadline }) {
        const setting = journal.setLimits(params.queue, body as QueueLimits);
        await bounded(setting.catch(toInvalid), deadline);
        return read(signal);
      },
    }),
  ];
}

/** Throws a Problem for limits that the journal refuses. */
function toInvalid(error: unknown): never {
  const isInvalid = error instanceof RangeError || error instanceof TypeError;
  throw isInvalid ? new Problem(400, "INVALID", error.message) : error;
}
