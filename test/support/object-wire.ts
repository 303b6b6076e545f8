import { bytesToHex, hexToBytes } from "@noble/hashes/utils.js";

/** JSON with bytes. */
export function toWire(value: unknown): string {
  return JSON.stringify(value, (_, part) =>
    part instanceof Uint8Array ? { bytes: bytesToHex(part) } : part,
  );
}

export function fromWire(text: string) {
  return JSON.parse(text, (_, part) =>
    typeof part?.bytes === "string" ? hexToBytes(part.bytes) : part,
  );
}

/** Marks the calls of tests. */
export const CALL = "Test-Call";

export interface Objects {
  getByName(name: string): { lockstep(call: unknown): Promise<unknown> };
}

/** In Node: the objects of the workerd at this URL, as a Worker's binding. */
export function objectsAt(url: URL): Objects {
  const post = async (name: string, call: unknown) => {
    const init = { method: "POST", headers: { [CALL]: "yes" }, body: toWire(call) };
    const response = await fetch(new URL(name, url), init);
    const answer = await response.text();
    if (!response.ok) throw new Error(answer);
    return fromWire(answer);
  };
  return { getByName: (name) => ({ lockstep: (call) => post(name, call) }) };
}
