import { DBOS } from "@dbos-inc/dbos-sdk";
import { PostgresDataSource } from "@dbos-inc/postgres-datasource";

/** Our workflows on DBOS. Its registry is per process, so only one instance can exist. */
export async function startDbos(url: string, steps: number, poolSize: number) {
  const { hostname: host, port, username: user, pathname } = new URL(url);
  const options = { host, port: Number(port), user, database: pathname.slice(1), max: poolSize };
  await PostgresDataSource.initializeDBOSSchema(options);
  const source = new PostgresDataSource("bench", options);
  const quiet = () => {};
  DBOS.setConfig({
    name: "bench",
    systemDatabaseUrl: url,
    systemDatabasePoolSize: poolSize,
    logger: { info: quiet, debug: quiet, warn: quiet, error: quiet },
  });
  const plain = DBOS.registerWorkflow(
    async () => {
      for (let i = 0; i < steps; i += 1) await DBOS.runStep(async () => i, { name: "step" });
    },
    { name: "plain" },
  );
  const transacted = DBOS.registerWorkflow(
    async () => {
      for (let i = 0; i < steps; i += 1) {
        await source.runTransaction(
          async () => {
            await PostgresDataSource.client`INSERT INTO effect (step) VALUES (${i})`;
          },
          { name: "step" },
        );
      }
    },
    { name: "transacted" },
  );
  await DBOS.launch();
  await source.runTransaction(async () => {
    await PostgresDataSource.client`CREATE TABLE effect (step INT NOT NULL)`;
  });
  // DBOS takes a method call for a call of a class's workflow.
  return { plain: () => plain(), transacted: () => transacted(), stop: () => DBOS.shutdown() };
}
