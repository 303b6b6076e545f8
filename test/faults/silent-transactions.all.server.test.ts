import { afterAll, beforeAll, describe, expect, inject, onTestFinished, test, vi } from "vitest";
import { type Database, sql } from "../../core/database/sql.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryDatabase } from "../support/under-test.ts";
import { until } from "../support/until.ts";

for (const server of [...inject("sqlServers"), ...inject("postgresServers")]) {
  describe(`a transaction on ${server.name} whose client is silent`, () => {
    let own: Awaited<ReturnType<typeof temporaryDatabase>>;
    let others: Database;

    beforeAll(async () => {
      own = await temporaryDatabase(server);
      others = own.open();
      await others.batch([sql`CREATE TABLE seat (id INT PRIMARY KEY, taken INT NOT NULL)`]);
      await others.batch([sql`INSERT INTO seat VALUES (1, 0), (2, 0), (3, 0)`]);
    });

    afterAll(async () => {
      await others.close();
      await own.drop();
    });

    const take = (id: number) => sql`UPDATE seat SET taken = taken + 1 WHERE id = ${id}`;

    const takeMany = (id: number) => sql`UPDATE seat SET taken = taken + 1000 WHERE id = ${id}`;

    const taken = async (id: number) =>
      Number((await others.read(sql`SELECT taken FROM seat WHERE id = ${id}`))[0]?.taken);

    test("is rolled back by the server, which the end of the client never reaches", async () => {
      const wire = await TcpProxy.to(own.options.port);
      const frozen = own.open({ port: wire.port });
      onTestFinished(async () => {
        wire.mend();
        await frozen.close();
        await wire.close();
      });
      const transaction = frozen.transaction(async (tx) => {
        await tx.batch([takeMany(1)]);
        wire.cut();
        await tx.commit([takeMany(1)]);
      });
      transaction.catch(() => {});
      await until(() => wire.dropped > 0);
      const takeIt = () =>
        others.batch([take(1)]).then(
          () => true,
          () => false,
        );
      await until(takeIt, 60_000);
      await expect(transaction).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      // An attempt of the others without an answer may have been executed, too.
      expect(await taken(1)).toBeLessThan(1_000);
    });

    test("after a pause of its process is repeated, and commits once", async () => {
      const pause = movableClock();
      let bodies = 0;
      await others.transaction(async (tx) => {
        bodies += 1;
        await tx.batch([take(2)]);
        if (bodies === 1) pause(10_000);
        await tx.commit([take(3)]);
      });
      expect(bodies).toBe(2);
      expect([await taken(2), await taken(3)]).toEqual([1, 1]);
    });

    test("each time is refused, with the limit in the error, and changes nothing", async () => {
      const pause = movableClock();
      const before = await taken(2);
      const transaction = others.transaction(async (tx) => {
        await tx.batch([take(2)]);
        pause(10_000);
        await tx.batch([take(2)]);
      });
      await expect(transaction).rejects.toMatchObject({
        code: "STORE_REFUSED",
        message: expect.stringContaining("10 s"),
      });
      expect(await taken(2)).toBe(before);
      // The connection serves others, without the limit.
      expect(await taken(3)).toBe(1);
    });
  });
}

/** Returns a function that moves the monotonic clock ahead, until the test has finished. */
function movableClock(): (span: number) => void {
  const now = performance.now.bind(performance);
  let ahead = 0;
  const clock = vi.spyOn(performance, "now").mockImplementation(() => now() + ahead);
  onTestFinished(() => clock.mockRestore());
  return (span) => {
    ahead += span;
  };
}
