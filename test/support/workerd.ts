import { Miniflare } from "miniflare";
import { objectsAt } from "./object-wire.ts";
import { bundleForWeb } from "./web-bundle.ts";

export type Workerd = Awaited<ReturnType<typeof startWorkerd>>;

/** Starts workerd with a Worker, its Durable Objects and a D1 database. */
export async function startWorkerd(program = "./test/programs/shop-object.ts") {
  const { code, foreign } = await bundleForWeb(`
    export * from "${program}";
    import worker from "${program}";
    import { passOn } from "./test/programs/pass-on.ts";
    const fetch = async (request, env) => (await passOn(request, env)) ?? worker.fetch(request, env);
    export default { fetch };`);
  if (foreign.length > 0) throw new Error(`the Worker needs ${foreign}`);
  const workers = new Miniflare({
    modules: [{ type: "ESModule", path: "worker.mjs", contents: code }],
    compatibilityDate: "2026-07-01",
    d1Databases: ["DB"],
    durableObjects: { SHOP: { className: "Shop", useSQLite: true } },
  });
  const url = await workers.ready;
  return {
    objects: objectsAt(url),
    d1: await workers.getD1Database("DB"),
    async ask(path: string) {
      const response = await fetch(new URL(path, url));
      const answer = await response.text();
      if (!response.ok) throw new Error(answer);
      return JSON.parse(answer);
    },
    stop: () => workers.dispose(),
  };
}
