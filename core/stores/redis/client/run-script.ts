import { CommandFailure } from "./failure.ts";
import type { Command, Reply, Script, ScriptInput } from "./redis.ts";

/**
 * Runs a script by its hash, and by its text when the server does not know the hash. Sends the commands `then` right
 * after it; a failed one has no reply, since the script has been executed.
 */
export async function runScript(
  send: (command: Command) => Promise<Reply>,
  { sha1, lua }: Script,
  { keys, args = [] }: ScriptInput,
  ...then: readonly Command[]
): Promise<readonly Reply[]> {
  const sendBy = async (name: string, id: string) => {
    const done = send([name, id, keys.length, ...keys, ...args]);
    const following = then.map((each) => send(each).catch(() => undefined));
    const replies: Reply[] = [];
    for (const reply of [done, ...following]) replies.push(await reply);
    return replies;
  };
  try {
    return await sendBy("EVALSHA", sha1);
  } catch (failure) {
    if (!(failure instanceof CommandFailure) || failure.code !== "NOSCRIPT") throw failure;
    return await sendBy("EVAL", lua);
  }
}
