import { CommandFailure } from "./failure.ts";
import type { Command, Reply, Script, ScriptInput } from "./redis.ts";

/** Runs a script by its hash, and by its text when the server does not know the hash. */
export async function runScript(
  send: (command: Command) => Promise<Reply>,
  { sha1, lua }: Script,
  { keys, args = [], signal }: ScriptInput,
): Promise<Reply> {
  try {
    return await send(["EVALSHA", sha1, keys.length, ...keys, ...args]);
  } catch (failure) {
    if (!(failure instanceof CommandFailure) || failure.code !== "NOSCRIPT") throw failure;
    // The caller has given up, and may have withdrawn the request already.
    if (signal?.aborted) throw failure;
    return await send(["EVAL", lua, keys.length, ...keys, ...args]);
  }
}
