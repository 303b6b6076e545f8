import { open } from "../../../infra/open.ts";

/** Opens a store and reads: the part of a function's first answer that is not the function's own work. */
export async function handler(): Promise<object> {
  const { inventory } = await open(process.env.LOCKSTEP_STORE ?? "");
  return { stock: await inventory.get("teapot") };
}
