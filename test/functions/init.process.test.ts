import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { PROJECT_KINDS, PROJECT_STORES, writeProject } from "../../infra/init/write-project.ts";
import { cli } from "../support/cli.ts";
import { cliInProcess } from "../support/cli-in-process.ts";

/** What only the projects of other stores have. */
const OTHERS = {
  mysql: /etcd|dynamodb|postgres/i,
  "mysql+etcd": /dynamodb|postgres/i,
  postgres: /etcd|dynamodb|mysql|mariadb/i,
  "postgres+etcd": /dynamodb|mysql|mariadb/i,
  dynamodb:
    /mysql|postgres|etcd|\brds\b|ec2:|network|security-?groups|subnets|shop-?secret|extra_ca|migrateHandler/i,
};

let home: string;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "lockstep-init-"));
});

afterEach(() => rm(home, { recursive: true, force: true }));

test("init writes a project, and nothing to a pipe", async () => {
  const folder = join(home, "tea-shop");
  const { status, stdout, stderr } = await cli("init", folder, "--kind", "sam");
  expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: "", stderr: "" });
  const files = await readdir(folder);
  for (const file of [".gitignore", "Dockerfile", "README.md", "compose.yaml", "template.yaml"]) {
    expect(files).toContain(file);
  }
  const { name, dependencies } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const own = JSON.parse(await readFile("package.json", "utf8"));
  expect(name).toBe("tea-shop");
  expect(dependencies.lockstep).toBe(`^${own.version}`);
});

test("init names the files that exist, and writes none", async () => {
  await writeFile(join(home, "README.md"), "mine");
  const { status, stderr } = await cli("init", home, "--kind", "cdk", "--name", "shop");
  expect(status).toBe(64);
  expect(stderr).toBe(
    `lockstep: ${home} already has README.md: nothing was written; choose another folder\n`,
  );
  expect(await readdir(home)).toEqual(["README.md"]);
  expect(await readFile(join(home, "README.md"), "utf8")).toBe("mine");
});

test("init writes nothing where a file or a broken link stands in the place of a folder", async () => {
  const file = join(home, "file");
  await writeFile(file, "");
  const link = join(home, "link");
  await symlink(join(home, "nowhere"), link);
  const part = join(home, "part");
  await mkdir(part);
  await writeFile(join(part, "src"), "");
  for (const [folder, problem] of [
    [file, "already has . (no folder)"],
    [link, "already has . (no folder)"],
    [part, "already has src (no folder)"],
    ["", "the folder of the project must not be empty"],
  ] as const) {
    const { status, stderr } = await cliInProcess("init", folder, "--kind", "sam", "--name", "a");
    expect(stderr).toContain(problem);
    expect(status).toBe(64);
  }
  expect(await readdir(part)).toEqual(["src"]);
});

test("init says in one line that the folder cannot be made", async () => {
  const file = join(home, "file");
  await writeFile(file, "");
  const { status, stdout, stderr } = await cliInProcess(
    "init",
    join(file, "shop"),
    "--kind",
    "sam",
  );
  expect({ status, stdout }).toEqual({ status: 73, stdout: "" });
  expect(stderr).toMatch(/^lockstep: ENOTDIR: .*shop'\n$/);
});

test.each(["Shop", "7up", "a_b", "a/b", "", "a".repeat(31)])(
  "init refuses the name %j before it writes",
  async (name) => {
    const folder = join(home, "new");
    const options = { folder, name, kind: "osls", store: "mysql", version: "1.2.3" } as const;
    await expect(writeProject(options)).rejects.toThrow(/1 to 30 lower-case letters.*not "/);
    expect(await readdir(home)).toEqual([]);
  },
);

test.each(PROJECT_KINDS.flatMap((kind) => PROJECT_STORES.map((store) => [kind, store] as const)))(
  "a project for %s on %s has its own name, its own store, and no mark of a template",
  async (kind, store) => {
    const folder = join(home, "new");
    const files = await writeProject({ folder, name: "a1", kind, store, version: "1.2.3" });
    for (const file of files) {
      const text = await readFile(join(folder, file), "utf8");
      expect(text, file).not.toMatch(/my-shop|<\/?(sql|mysql|postgres|etcd|dynamodb)/);
      expect(text.endsWith("\n"), file).toBe(true);
      expect(text, file).not.toMatch(OTHERS[store]);
    }
  },
);
