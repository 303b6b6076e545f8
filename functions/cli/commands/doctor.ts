import type { CommandModule } from "yargs";
import type { AnyStore } from "../../../infra/open.ts";
import { formatJson } from "../../display/format-json.ts";
import { examine, failed } from "../../doctor/doctor.ts";
import type { Finding } from "../../doctor/finding.ts";
import { EXIT } from "../exit-status.ts";
import { jsonOption, locksOption, type StoreArgs, storeOption } from "../options.ts";
import { withStore } from "../store.ts";
import { colour } from "../terminal/draw-timeline.ts";
import { print } from "../terminal/output.ts";

interface DoctorArgs extends StoreArgs {
  readonly url: string | undefined;
  readonly locks: string | undefined;
  readonly json: boolean;
}

export const doctorCommand: CommandModule<unknown, DoctorArgs> = {
  command: "doctor [url]",
  describe: "Examine a store: reachable, version, tables, clock, durability, speed",
  builder: (yargs) =>
    jsonOption(locksOption(storeOption(yargs), "the store of the locks, examined as well"))
      .positional("url", { type: "string", describe: "the URL of this store alone" })
      .example("$0 doctor redis://cache-1:6379", "what to change before locks go there")
      .epilog("Exit status: 0 healthy; 1 a problem; 69 unreachable, or refused."),
  async handler({ url, store, locks, json }) {
    const findings: Finding[] = [];
    const report = (finding: Finding) => {
      findings.push(finding);
      if (!json) print(draw(finding));
    };
    for (const each of url === undefined ? new Set([store, locks ?? store]) : [url]) {
      const work = async (opened: AnyStore) => {
        for await (const finding of examine(opened, each)) report(finding);
      };
      await withStore({ store: each }, work, { create: false }).catch((error) =>
        report(failed(error)),
      );
    }
    if (json) print(formatJson(findings));
    process.exitCode = exitStatusOfAll(findings);
  },
};

function exitStatusOfAll(findings: readonly Finding[]): number {
  const problems = findings.filter(({ status }) => status === "problem");
  if (problems.some(({ check }) => ["unreachable", "unavailable", "refused"].includes(check))) {
    return EXIT.unavailable;
  }
  return problems.length > 0 ? EXIT.no : 0;
}

function draw({ status, check, message, cure }: Finding): string {
  const line = `${status.padEnd(7)}  ${check.padEnd(13)}  ${message}`;
  const advice = cure === undefined ? "" : `\n${" ".repeat(9)}→ ${cure}`;
  return status === "problem" ? colour("strong", line) + advice : line + advice;
}
