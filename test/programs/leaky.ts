import { z } from "zod";
import { workflow } from "../../core/steps/workflow.ts";

/** Its step fails with the URL of a database, password included, as clients of databases do. */
export const leaky = workflow({ name: "leaky", version: 1, input: z.null() }, (ctx) =>
  ctx.step("pay", { lock: "till", retry: { attempts: 2, base: "20ms" } }, async () => {
    const cause = new Error(`connect to mysql://root:${process.env.LEAKED_PASSWORD}@db/shop`);
    throw new Error(`no answer of mysql://shop:${process.env.LEAKED_PASSWORD}@db/shop`, { cause });
  }),
);
