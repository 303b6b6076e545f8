import { expect, test } from "vitest";
import { CommandFailure } from "../../core/stores/redis/client/failure.ts";
import { runScript } from "../../core/stores/redis/client/run-script.ts";

test("a script that the server does not know is not sent again once its caller has given up", async () => {
  const caller = new AbortController();
  const sent: unknown[] = [];
  const send = async ([command]: readonly unknown[]) => {
    sent.push(command);
    caller.abort();
    throw new CommandFailure("answered", "NOSCRIPT No matching script");
  };
  const script = { sha1: "5a", lua: "return 1", reads: false };
  const running = runScript(send, script, { keys: ["k"], signal: caller.signal });
  await expect(running).rejects.toMatchObject({ code: "NOSCRIPT" });
  expect(sent).toEqual(["EVALSHA"]);
});
