import { open } from "../../infra/open.ts";
import { type Finding, judgeEach } from "./finding.ts";
import { examineRedis } from "./redis.ts";

/** Examines each master of a Redlock. */
export async function examineRedlock(
  url: string,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const [, start, hosts = "", end] =
    /^redlock(s?:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/is.exec(url) ?? [];
  return judgeEach(hosts.split(","), async (host) => {
    const own = `redis${start}${host}${end}`;
    await using master = await open(own);
    return await examineRedis(master.redis, own, signal);
  });
}
