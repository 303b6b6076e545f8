import { open } from "../../infra/open.ts";
import { type Finding, judgePresence } from "./finding.ts";
import { examineRedis } from "./redis.ts";

/** Examines each master of a Redlock. Findings that are true of some masters alone name these. */
export async function examineMasters(
  url: string,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const [, start, hosts = "", end] =
    /^redlock(s?:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/is.exec(url) ?? [];
  const names = hosts.split(",");
  const found = await Promise.all(
    names.map(async (name) => {
      await using master = await open(`redis${start}${name}${end}`);
      const findings = await examineRedis(master.redis, signal).catch(() => undefined);
      return { name, findings };
    }),
  );
  const away = found.flatMap(({ name, findings }) => (findings ? [] : [name]));
  const all = found.flatMap(({ name, findings = [] }) => findings.map((each) => ({ name, each })));
  const byMessage = Map.groupBy(all, ({ each: { check, message } }) => `${check} ${message}`);
  return [
    judgePresence(names, away),
    ...[...byMessage.values()].flatMap((same) => {
      const [first] = same;
      if (!first) return [];
      const isOfAll = same.length + away.length === names.length;
      const where = isOfAll ? "" : ` (${same.map(({ name }) => name).join(", ")})`;
      return [{ ...first.each, message: first.each.message + where }];
    }),
  ];
}
