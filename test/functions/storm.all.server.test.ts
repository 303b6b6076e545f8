import { describe, expect, test } from "vitest";
import { STORES, type StormStoresName } from "../storm/stores.ts";
import { problemsOf, type StormOptions, storm } from "../storm/storm.ts";
import { cells } from "../support/matrix.ts";

const small = {
  orders: 300,
  units: 75,
  environments: 5,
  ttl: 500,
  faults: { freeze: 2, "hang-before": 1, "hang-after": 1 },
  duplicates: 20,
  twice: 50,
  seed: 7,
  limit: 220_000,
};

/** `npm run storm` has the full one: 2,000 orders on 20 environments. */
describe.concurrent("a flash sale on the Lambda host", () => {
  test.each(cells(Object.keys(STORES) as StormStoresName[]))(
    "sells every unit once, answers every order and loses no message on %s",
    async (name) => {
      await using stores = await STORES[name]();
      const minTtl = name === "mysql+etcd" ? { ttl: 1_500 } : {};
      const options: StormOptions = { ...small, ...minTtl, ...stores };
      const report = await storm(options);
      expect(problemsOf(report, options)).toEqual([]);
      expect(report.told).toBeGreaterThan(small.orders);
    },
    240_000,
  );
});
