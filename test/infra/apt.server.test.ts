import { access, mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { findOrInstall, NotInstalledError } from "../../infra/servers/binaries.ts";
import { runProgram } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

/** Takes a file's lock as apt does, says so, and keeps the lock until it is killed. */
const HOLD = `
  use Fcntl;
  $| = 1;
  open(my $file, ">>", $ARGV[0]) or die;
  my $all = pack("s s l! l! i", F_WRLCK, 0, 0, 0, 0);
  fcntl($file, F_SETLK, $all) or die;
  print "held\\n";
  sleep(600);
`;

test.for(["lists", "archives"])(
  "the installation waits while another apt holds the lock of its %s",
  async (held) => {
    if (process.getuid?.() !== 0 || !(await isDebian())) {
      throw new NotInstalledError(
        "only root installs, and only with apt: run the tests so on Debian",
      );
    }
    const folder = await ownApt();
    using holder = runProgram("perl", ["-e", HOLD, join(folder, held, "lock")]);
    expect(await holder.line()).toBe("held");
    const steps: string[] = [];
    // Debian has this package on every machine; a name that no binary has makes us install it.
    const missing = { binaries: ["no-such-binary"], packages: ["hostname"] };
    const installed = findOrInstall(missing, (step) => steps.push(step));
    installed.catch(() => {});
    await until(() => steps.includes("waiting for another apt to end"), 60_000);
    holder.child.kill("SIGKILL");
    expect(await installed).toBeUndefined();
  },
);

function isDebian(): Promise<boolean> {
  return access("/var/lib/dpkg/status").then(
    () => true,
    () => false,
  );
}

/** Lets apt work in a folder of its own, without sources, and returns the folder. */
async function ownApt(): Promise<string> {
  const { file, remove } = await temporaryFile();
  const folder = dirname(file);
  const lists = join(folder, "lists");
  const archives = join(folder, "archives");
  for (const each of [lists, archives]) await mkdir(join(each, "partial"), { recursive: true });
  await writeFile(
    file,
    `Dir::State::lists "${lists}"; Dir::Cache::archives "${archives}";
     Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "/dev/null";`,
  );
  vi.stubEnv("APT_CONFIG", file);
  onTestFinished(async () => {
    vi.unstubAllEnvs();
    await remove();
  });
  return folder;
}
