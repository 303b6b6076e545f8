import { hasCode } from "../../core/lock/errors.ts";

/** The answer to one question about a store. */
export interface Finding {
  readonly check: string;

  /** `problem`: locks, fences or stock may be lost, or do not work. `note`: worth knowing. */
  readonly status: "ok" | "note" | "problem";
  readonly message: string;

  /** The advice to the operator. */
  readonly cure?: string | undefined;
}

export function ok(check: string, message: string): Finding {
  return { check, status: "ok", message };
}

export function note(check: string, message: string, cure?: string): Finding {
  return { check, status: "note", message, cure };
}

export function problem(check: string, message: string, cure: string): Finding {
  return { check, status: "problem", message, cure };
}

/** Judges which of several servers answer. */
export function judgePresence(servers: readonly string[], away: readonly string[]): Finding {
  const text = `${servers.length - away.length} of ${servers.length} answer`;
  if (away.length === 0) return ok("servers", text);
  const cure = "start them: without a majority, locks stand still";
  return note("servers", `${text}; not ${away.join(", ")}`, cure);
}

/** Examines each of several servers: a refusal is a finding. Findings that are true of some servers alone name these. */
export async function judgeEach(
  servers: readonly string[],
  examine: (server: string) => Promise<readonly Finding[]>,
): Promise<readonly Finding[]> {
  const found = await Promise.all(
    servers.map(async (name) => ({ name, findings: await examine(name).catch(refusal) })),
  );
  const away = found.flatMap(({ name, findings }) => (findings ? [] : [name]));
  const all = found.flatMap(({ name, findings = [] }) => findings.map((each) => ({ name, each })));
  const byMessage = Map.groupBy(all, ({ each: { check, message } }) => `${check} ${message}`);
  return [
    judgePresence(servers, away),
    ...[...byMessage.values()].flatMap((same) => {
      const [first] = same;
      if (!first) return [];
      const isOfAll = same.length + away.length === servers.length;
      const where = isOfAll ? "" : ` (${same.map(({ name }) => name).join(", ")})`;
      return [{ ...first.each, message: first.each.message + where }];
    }),
  ];
}

/** The finding for an error. Undefined if the server does not answer. */
function refusal(error: unknown): readonly Finding[] | undefined {
  if (hasCode(error, "STORE_UNAVAILABLE")) return undefined;
  if (!hasCode(error, "STORE_REFUSED")) throw error;
  return [problem("refused", (error as Error).message, "check user, password, TLS and privileges")];
}

/** Compares a version such as "10.11.6-MariaDB" with the lowest one that Lockstep supports. */
export function judgeVersion(product: string, version: string, lowest: string): Finding {
  const [major = 0, minor = 0] = version.split(".").map((part) => Number.parseInt(part, 10));
  const [leastMajor = 0, leastMinor = 0] = lowest.split(".").map(Number);
  const isOld = major < leastMajor || (major === leastMajor && minor < leastMinor);
  const name = `${product} ${version}`;
  if (!isOld) return ok("version", name);
  return problem("version", `${name} is too old`, `upgrade to ${product} ${lowest} or later`);
}
