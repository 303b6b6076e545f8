import { execFile } from "node:child_process";
import { readFile, symlink } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect } from "vitest";
import { run } from "../../infra/servers/processes.ts";
import { fromCloudFormation } from "./deployment/cloudformation.ts";
import type { Deployment } from "./deployment/deployment.ts";
import { DEPLOYMENTS, loadParsers } from "./deployment/parsers.ts";
import { withoutSam } from "./deployment/sam.ts";
import { fromTerraform } from "./deployment/terraform.ts";
import type { PackedProject } from "./packed-project.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** Adds to a packed project what the deployments of projects in its folder import. */
export async function addDeploymentPackages({ folder }: PackedProject): Promise<void> {
  await loadParsers();
  for (const name of ["aws-cdk-lib", "constructs"]) {
    await symlink(join(DEPLOYMENTS, "node_modules", name), join(folder, "node_modules", name));
  }
}

/** Writes a project with the command of the package, beside which the packages are installed. Returns its folder. */
export async function initProject(
  { folder }: PackedProject,
  kind: string,
  store: string,
): Promise<string> {
  const own = join(folder, `${kind}-${store}`);
  const words = ["init", own, "--kind", kind, "--store", store, "--name", "tea-shop"];
  const lockstep = join(folder, "node_modules/.bin/lockstep");
  const quiet = await promisify(execFile)(lockstep, words, { cwd: folder });
  expect(quiet).toEqual({ stdout: "", stderr: "" });
  return own;
}

/** Compiles a project. Rejects if a type is wrong. */
export async function checkTypes(folder: string): Promise<void> {
  await run(process.execPath, [join(root, "node_modules/typescript/bin/tsc")], { cwd: folder });
}

/** Runs a command of a project, with the tools of this repository. */
export function inProject(folder: string, command: string): Promise<string> {
  const tools = [root, DEPLOYMENTS].map((one) => join(one, "node_modules/.bin"));
  const PATH = [...tools, process.env.PATH].join(":");
  return run("sh", ["-c", command], { cwd: folder, env: { ...process.env, PATH } });
}

/** Runs a command without a network, if root. */
function offline(folder: string, command: string) {
  const isRoot = process.getuid?.() === 0;
  return inProject(folder, isRoot ? `unshare -rn sh -c '${command}'` : command);
}

const text = (folder: string, file: string) => readFile(join(folder, file), "utf8");

/** Packages or parses the deployment of a bundled project. */
export const DEPLOYMENT_OF: Readonly<Record<string, (folder: string) => Promise<Deployment>>> = {
  async osls(folder) {
    await offline(folder, "osls package --package out </dev/null");
    const template = await text(folder, "out/cloudformation-template-update-stack.json");
    return fromCloudFormation(JSON.parse(template));
  },

  async sam(folder) {
    const { parseYaml } = await loadParsers();
    const template = parseYaml(await text(folder, "template.yaml"));
    return fromCloudFormation(withoutSam(template as Parameters<typeof withoutSam>[0]));
  },

  async cdk(folder) {
    await offline(folder, "cdk synth --quiet --output out");
    return fromCloudFormation(JSON.parse(await text(folder, "out/tea-shop-dev.template.json")));
  },

  async terraform(folder) {
    const { parseHcl } = await loadParsers();
    return fromTerraform(await text(folder, "main.tf"), parseHcl);
  },
};
