import { expect, inject, onTestFinished, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { LONGEST_CONNECT } from "../../core/stores/sql/server/connection.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryDatabase } from "../support/under-test.ts";
import { until } from "../support/until.ts";

test.for([...inject("sqlServers"), ...inject("postgresServers")])(
  "a process that was frozen while it connected to $name connects again",
  async (server) => {
    const own = await temporaryDatabase(server);
    const wire = await TcpProxy.to(own.options.port);
    const database = own.open({ port: wire.port });
    onTestFinished(async () => {
      await database.close();
      await wire.close();
      await own.drop();
    });
    const reading = database.batch([sql`SELECT 'yes' AS one`]);
    await until(() => wire.connections > 0);
    freeze(LONGEST_CONNECT + 500);
    expect(await reading).toMatchObject([{ rows: [{ one: "yes" }] }]);
  },
);

/** Blocks the event loop. */
function freeze(millis: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, millis);
}
