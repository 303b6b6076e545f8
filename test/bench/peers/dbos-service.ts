import { DBOS } from "@dbos-inc/dbos-sdk";
import { PostgresDataSource } from "@dbos-inc/postgres-datasource";
import type {
  Execution,
  IdempotentService,
  ServiceOptions,
} from "../../peers/idempotent-service.ts";

/** Each operation is a workflow of one step, whose effect is outside. */
export function openStep(
  options: ServiceOptions,
  { charge }: Execution,
): Promise<IdempotentService> {
  return open(options, (operation) => DBOS.runStep(() => charge(operation), { name: "charge" }));
}

/** Each operation is a workflow of one transaction. */
export async function openTransaction(
  options: ServiceOptions,
  { chargeWithin }: Execution,
): Promise<IdempotentService> {
  const source = new PostgresDataSource("shop", loginOf(options.url));
  return open(options, (operation) =>
    source.runTransaction(
      () =>
        chargeWithin(operation, async (receipt) => {
          await PostgresDataSource.client`INSERT INTO effect (operation, receipt) VALUES (${operation}, ${receipt})`;
        }),
      { name: "charge" },
    ),
  );
}

/** Makes the tables before any executor starts: those that start at once refuse one another's migrations. */
export async function makeTables(url: string): Promise<void> {
  await launch(url, "migration");
  await DBOS.shutdown();
  await PostgresDataSource.initializeDBOSSchema(loginOf(url));
}

async function open(
  { url, executor }: ServiceOptions,
  work: (operation: string) => Promise<string>,
): Promise<IdempotentService> {
  const workflow = DBOS.registerWorkflow(work, { name: "charge" });
  await launch(url, executor);
  return {
    async deliver(operation) {
      const handle = await DBOS.startWorkflow(workflow, { workflowID: operation })(operation);
      return handle.getResult();
    },
  };
}

async function launch(url: string, executorID: string): Promise<void> {
  const quiet = () => {};
  DBOS.setConfig({
    name: "shop",
    systemDatabaseUrl: url,
    executorID,
    logger: { info: quiet, debug: quiet, warn: quiet, error: quiet },
  });
  await DBOS.launch();
}

function loginOf(url: string) {
  const { hostname: host, port, username: user, pathname } = new URL(url);
  return { host, port: Number(port), user, database: pathname.slice(1) };
}
