import { stockLock } from "lockstep/inventory";
import { workflow } from "lockstep/steps";
import { z } from "zod";

const Order = z.object({ id: z.string(), sku: z.string(), quantity: z.number() });

export default ({ inventory }) =>
  workflow({ name: "order", version: 1, input: Order, id: ({ id }) => id }, (ctx, { sku }) =>
    ctx.step.tx("look", { lock: stockLock(sku) }, ({ tx }) => inventory.within(tx).get(sku)),
  );
