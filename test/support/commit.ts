import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/** The code that a result was measured on. */
export interface MeasuredCode {
  /** The commit that was checked out; with "+" if files of the project differed from it. Undefined outside of a clone. */
  readonly commit?: string;

  /** Of results that do not name their commit: the commit that added them. */
  readonly addedBy?: string;
}

/** Returns the commit that is checked out. */
export function measuredCode(): MeasuredCode {
  const cwd = fileURLToPath(new URL("../..", import.meta.url));
  const args = ["describe", "--always", "--dirty=+", "--exclude=*"];
  try {
    const stdio = ["ignore", "pipe", "ignore"] as const;
    return {
      commit: execFileSync("git", args, { cwd, encoding: "utf8", stdio: [...stdio] }).trim(),
    };
  } catch {
    return {};
  }
}

/** Names the code for a sentence: "commit `1a2b3c4`". */
export function nameCode({ commit, addedBy }: MeasuredCode): string {
  if (commit?.endsWith("+")) return `commit \`${commit.slice(0, -1)}\` with changes`;
  if (commit) return `commit \`${commit}\``;
  if (addedBy) return `commit \`${addedBy}\`, which added the results, or an earlier one`;
  return "an unknown commit";
}
