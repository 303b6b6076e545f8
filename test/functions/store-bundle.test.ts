import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { bundleOf, STORE_BUNDLES } from "../support/store-bundles.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** The bytes by which bundles of the compiled package are larger, at least: its helpers are those of tslib. */
const HELPERS = 1_700;

describe.each(STORE_BUNDLES)("%s alone", (name, entry, most, shared) => {
  test("is no larger than it has to be, and brings no other store", async () => {
    const { files, bytes } = await bundleOf(name, `./core/stores/${entry}/index.ts`, root);
    const stores = files.flatMap((file) => /^core\/stores\/(\w+)\//.exec(file)?.[1] ?? []);
    expect([...new Set(stores)].toSorted()).toEqual([entry, ...shared].toSorted());
    expect(files.filter((file) => /^(functions|infra|core\/steps)\//.test(file))).toEqual([]);
    // A store that brings nothing has been measured wrongly.
    expect(bytes).toBeGreaterThan(20_000);
    expect(bytes + HELPERS).toBeLessThan(most);
  });
});
