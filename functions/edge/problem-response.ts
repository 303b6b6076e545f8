import { problemBody, problemHeaders, toProblem } from "../http/problem.ts";

/**
 * What an error of this package means to a client, as `application/problem+json`: 423 where a lock is busy, 409 for a
 * holder that is late, 503 where the store is away.
 *
 * Undefined for any other error, and for what is a fault on our side: throw it, so that the runtime logs it.
 */
export function problemResponse(error: unknown): Response | undefined {
  const problem = toProblem(error);
  const { status } = problem;
  if (status === 500) return undefined;
  const body = problemBody(problem, crypto.randomUUID());
  return Response.json(body, { status, headers: problemHeaders(problem) });
}
