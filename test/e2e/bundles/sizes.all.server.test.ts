import { afterAll, beforeAll, expect, test } from "vitest";
import { type PackedProject, packedProject } from "../../support/packed-project.ts";
import { bundleOf, STORE_BUNDLES } from "../../support/store-bundles.ts";

let project: PackedProject;

beforeAll(async () => {
  project = await packedProject();
}, 600_000);

afterAll(() => project?.[Symbol.asyncDispose]());

test.each(STORE_BUNDLES)(
  "%s of the packed package is no larger than it has to be",
  async (...of) => {
    const [name, entry, most] = of;
    const { bytes } = await bundleOf(name, `lockstep/${entry}`, project.folder);
    expect(bytes).toBeLessThan(most);
  },
);
