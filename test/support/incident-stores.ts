import { expect, inject } from "vitest";
import { cliInProcess } from "./cli-in-process.ts";
import { anyTable } from "./dynamodb-under-test.ts";
import { anyPrefix, openLocal, redisServer } from "./redis-under-test.ts";
import { temporaryDatabase, temporaryFile } from "./under-test.ts";

/** A store for the incident. `remove` checks that nothing is left. */
export interface IncidentStore {
  readonly url: string;
  remove(): Promise<void>;
}

/** Makes a store of each kind that has stock. */
export const incidentStores: readonly (readonly [
  name: string,
  make: () => Promise<IncidentStore>,
])[] = [
  [
    "sqlite",
    async () => {
      const { file, remove } = await temporaryFile();
      return { url: `sqlite:${file}`, remove };
    },
  ],
  ...[...inject("sqlServers"), ...inject("postgresServers")].map(
    (server): (typeof incidentStores)[number] => [
      server.name,
      async () => {
        const { url, drop } = await temporaryDatabase(server);
        // PostgreSQL migrates in one transaction, of more requests than the test of lost answers lets pass between two faults.
        await cliInProcess("migrate", "--store", url);
        return { url, remove: drop };
      },
    ],
  ),
  ...inject("etcdServers")
    .slice(0, 1)
    .map(({ name, url }): (typeof incidentStores)[number] => [
      name,
      async () => ({ url: `${url}/oversell`, remove: async () => {} }),
    ]),
  [
    "redis",
    async () => {
      const prefix = anyPrefix();
      const remove = async () => expect(await keysUnder(prefix)).toEqual([]);
      return { url: `${redisServer("redis").url}?prefix=${prefix}`, remove };
    },
  ],
  ["dynamodb", async () => ({ url: (await anyTable()).url, remove: async () => {} })],
];

async function keysUnder(prefix: string): Promise<unknown> {
  await using redis = openLocal();
  return await redis.call(["KEYS", `*${prefix}*`]);
}
