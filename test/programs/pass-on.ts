import { answerFromD1, type D1Binding } from "../../core/stores/cloudflare/d1.ts";
import { CALL, fromWire, type Objects, toWire } from "../support/object-wire.ts";

interface Env {
  readonly SHOP: Objects;
  readonly DB: D1Binding;
}

/** Passes the call of a test, which runs in Node, on to D1, or to the object that the path names. */
export async function passOn(request: Request, { SHOP, DB }: Env) {
  if (!request.headers.has(CALL)) return undefined;
  const name = new URL(request.url).pathname.slice(1);
  const call = fromWire(await request.text());
  const answering = name === "d1" ? answerFromD1(DB, call) : SHOP.getByName(name).lockstep(call);
  return new Response(toWire(await answering));
}
