import { expect, test } from "vitest";
import { grownIn, type Size, soakTable, toStoreSoak } from "./growth.ts";

const size: Size = { turns: 1, heap: 20_000_000, handles: 3, records: 1_000, leases: 1 };

/** Sizes of which one kind grows by this much with each sample. */
const growing = (kind: keyof Size, by: number) =>
  Array.from({ length: 30 }, (_, i) => ({ ...size, [kind]: (size[kind] ?? 0) + by * i }));

test.each([
  ["heap", 200_000],
  ["handles", 1],
  ["records", 50],
  ["leases", 1],
] as const)("a soak sees %s that grow with each sample", (kind, by) => {
  expect(grownIn(growing(kind, by))).toEqual([expect.stringMatching(new RegExp(`^${kind}: `))]);
  expect(grownIn(growing(kind, 0))).toEqual([]);
});

test("a soak with too few samples is not taken for one without growth", () => {
  expect(grownIn([size, size])).toEqual(["there are too few samples"]);
});

test("the table shows the records at the end of the warm-up and at the end", () => {
  const report = { store: "zookeeper", sizes: growing("records", 50), grown: [] };
  const soak = toStoreSoak(report);
  expect(soak.records).toEqual([1_600, 2_450]);
  expect(soakTable({ stores: [soak] })).toContain("| 1,600 → 2,450 |");
});
