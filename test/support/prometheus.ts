import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { findOrThrow } from "../../infra/servers/binaries.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { tracked } from "./running.ts";
import { temporaryFile } from "./under-test.ts";
import { until } from "./until.ts";

/** Returns the paths of `prometheus` and of its tool. */
export async function prometheusBinaries() {
  const required = { binaries: ["prometheus"], packages: ["prometheus"] };
  const prometheus = await findOrThrow(required, () => {});
  return { prometheus, promtool: join(dirname(prometheus), "promtool") };
}

/** The value of a series at one moment. */
interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [time: number, value: string];
}

interface PrometheusOptions {
  /** The URL of /metrics. */
  readonly scrapes: string;

  /** The path of the rules. */
  readonly rules: string;
}

/** Starts a Prometheus server on loopback. */
export async function startPrometheus({ scrapes, rules }: PrometheusOptions) {
  const { prometheus } = await prometheusBinaries();
  const { file: config, remove } = await temporaryFile();
  const global = { scrape_interval: "5s", scrape_timeout: "5s", evaluation_interval: "1s" };
  const scrape_configs = [
    { job_name: "lockstep", static_configs: [{ targets: [new URL(scrapes).host] }] },
  ];
  // JSON is YAML.
  await writeFile(config, JSON.stringify({ global, rule_files: [rules], scrape_configs }));
  const url = `http://127.0.0.1:${await freePort()}`;
  const args = [
    `--config.file=${config}`,
    `--storage.tsdb.path=${join(dirname(config), "data")}`,
    `--web.listen-address=${new URL(url).host}`,
  ];
  const child = tracked(spawn(prometheus, args, { stdio: "ignore" }));
  const ended = once(child, "exit");
  const isReady = () =>
    fetch(`${url}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  await until(isReady);
  const get = async (path: string) => {
    const answer = await fetch(`${url}/api/v1/${path}`);
    const { status, data, error } = Object(await answer.json());
    if (status !== "success") throw new Error(`${path}: ${error}`);
    return data;
  };
  const query = async (expression: string): Promise<readonly Sample[]> =>
    (await get(`query?query=${encodeURIComponent(expression)}`)).result;
  return {
    /** Answers a query with its samples. */
    query,

    /** Whether a scrape has had such a sample. A scrape that comes too late ends the series, but not their past. */
    async has(selector: string): Promise<boolean> {
      return (await query(`last_over_time(${selector}[1h])`)).length > 0;
    },

    /** Returns the health of each rule. */
    async rules(): Promise<readonly { readonly name: string; readonly health: string }[]> {
      const { groups } = await get("rules");
      return groups.flatMap((group: { readonly rules: readonly unknown[] }) => group.rules);
    },

    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
      await remove();
    },
  };
}
