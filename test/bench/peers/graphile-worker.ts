import { randomUUID } from "node:crypto";
import { Logger, run } from "graphile-worker";

/** A worker of graphile-worker. Each call of `execute` adds one job, and resolves when the job is executed. */
export async function startGraphile(url: string, concurrency: number) {
  const executed = new Map<string, () => void>();
  const runner = await run({
    connectionString: url,
    concurrency,
    maxPoolSize: concurrency,
    noHandleSignals: true,
    logger: new Logger(() => () => {}),
    taskList: {
      job: async (payload) => executed.get(String(payload))?.(),
    },
  });
  const execute = async () => {
    const id = randomUUID();
    const { promise, resolve } = Promise.withResolvers<void>();
    executed.set(id, resolve);
    await runner.addJob("job", id);
    await promise;
    executed.delete(id);
  };
  return { execute, stop: () => runner.stop() };
}
