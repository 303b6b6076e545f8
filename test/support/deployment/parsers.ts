import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { run } from "../../../infra/servers/processes.ts";

/** The folder whose packages are installed for the tests of deployments: aws-cdk-lib, and parsers. */
export const DEPLOYMENTS = fileURLToPath(new URL("../../deployments/", import.meta.url));

interface Parsers {
  parseYaml(text: string): unknown;
  parseHcl(text: string): Promise<unknown>;
}

/** Installs the packages. The compiler does not see the import: the packages may not be installed. */
export async function loadParsers(): Promise<Parsers> {
  if (!existsSync(`${DEPLOYMENTS}node_modules/.package-lock.json`)) {
    await run("npm", ["ci", "--no-audit", "--no-fund"], { cwd: DEPLOYMENTS });
  }
  return import(`${DEPLOYMENTS}parse.ts`);
}
