import { type Journal, StaleRunError } from "../../core/journal/journal.ts";
import type { RunKey } from "../../core/journal/runs.ts";
import type { CallEvent } from "./replay.ts";

/** What a call was answered, in the terms of the model. */
type End = Pick<CallEvent, "type" | "code" | "token">;

const OK = { type: "ok" } as const;

/** Wraps a journal: the calls for leases, records and ends of runs are events. Each call is a client of its own. */
export function recordedJournal(
  journal: Journal,
  client: string,
  record: (event: Omit<CallEvent, "time">) => void,
): Journal {
  let calls = 0;
  const call = async <T>(
    operation: string,
    { runId, epoch }: Partial<RunKey> & Pick<RunKey, "runId">,
    body: () => Promise<T>,
    endOf: (answer: T) => End = () => OK,
  ): Promise<T> => {
    calls += 1;
    const about = {
      client: `${client}.${calls}`,
      operation,
      name: `run ${runId}`,
      ...(epoch !== undefined && { token: sortable(epoch) }),
    };
    record({ ...about, type: "invoke" });
    try {
      const answer = await body();
      record({ ...about, ...endOf(answer) });
      return answer;
    } catch (error) {
      const isStale = error instanceof StaleRunError;
      record({ ...about, ...(isStale ? refused("STALE") : { type: "unknown" }) });
      throw error;
    }
  };
  const claimed = (answer: Awaited<ReturnType<Journal["take"]>>): End =>
    answer.kind === "claimed" ? { ...OK, token: sortable(answer.epoch) } : refused(answer.kind);
  const { transact } = journal;
  return {
    ...journal,
    claim: (claim, signal) =>
      call("claim-run", { runId: claim.runId }, () => journal.claim(claim, signal), claimed),
    take: (request, signal) =>
      call("claim-run", { runId: request.runId }, () => journal.take(request, signal), claimed),
    renew: (run, ...rest) =>
      call(
        "renew-run",
        run,
        () => journal.renew(run, ...rest),
        (renewal) => (renewal ? OK : refused("lost")),
      ),
    append: (run, ...rest) => call("record", run, () => journal.append(run, ...rest)),
    transact: transact && ((run, ...rest) => call("record", run, () => transact(run, ...rest))),
    park: (run, ...rest) => call("park-run", run, () => journal.park(run, ...rest)),
    block: (run, ...rest) => call("park-run", run, () => journal.block(run, ...rest)),
    finish: (run, request, signal) =>
      call(
        request.status === "completed" ? "complete-run" : "end-run",
        run,
        () => journal.finish(run, request, signal),
        (answer) => (answer === "ended" ? OK : refused(answer)),
      ),
    cancel: (runId) =>
      call(
        "cancel-run",
        { runId },
        () => journal.cancel(runId),
        (answer) => (answer === "requested" ? OK : refused(answer)),
      ),
  };
}

function refused(code: string): End {
  return { type: "fail", code };
}

/** Returns a text that sorts like the epoch. */
function sortable(epoch: bigint): string {
  return String(epoch).padStart(20, "0");
}
