import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { dirname, parse } from "node:path";
import { fileURLToPath } from "node:url";
import { tracked } from "../running.ts";
import { RuntimeApi, type Said } from "./runtime-api.ts";

/** The outcome of an event. */
export type Invoked =
  | { readonly type: "response"; readonly result: unknown }
  | {
      readonly type: "error";
      readonly error: { readonly errorType: string; readonly errorMessage: string };
    }
  /** The process was killed at the timeout. */
  | { readonly type: "timeout" }
  /** The process has ended, or was killed. */
  | { readonly type: "exit" };

export interface FunctionOptions {
  /** The path of a module. */
  readonly module: string;

  /** The name of the exported handler. */
  readonly handler: string;

  /** The timeout of an invocation, in milliseconds. */
  readonly timeout: number;

  /** The descriptor of the open file that gets the standard output. Default: the output is dropped. */
  readonly log?: number;

  /** Added to the environment's variables. */
  readonly env?: NodeJS.ProcessEnv;

  /** The command that runs in an environment, in place of our own client of the runtime API. */
  readonly command?: readonly [string, ...string[]];
}

const BOOTSTRAP = fileURLToPath(new URL("./bootstrap.ts", import.meta.url));
export const ARN = "arn:aws:lambda:eu-central-1:000000000000:function:test";

/**
 * One execution environment: a process that handles one event at a time, is frozen (SIGSTOP) between two events, and
 * is killed (SIGKILL) when an event takes too long. The process is not notified of either.
 */
export class Environment {
  readonly #options: FunctionOptions;
  readonly #api: RuntimeApi;
  readonly #child: ChildProcess;
  readonly #exited: Promise<void>;
  #onSaid: (said: Said) => void = () => {};
  #isGone = false;

  private constructor(options: FunctionOptions, api: RuntimeApi, child: ChildProcess) {
    this.#options = options;
    this.#api = api;
    this.#child = child;
    this.#exited = new Promise((resolve) => {
      child.once("exit", () => {
        this.#isGone = true;
        api.close();
        resolve();
      });
    });
  }

  /** Resolves when the handler is loaded and the process is frozen, or to the outcome of the first event if loading fails. */
  static async start(options: FunctionOptions): Promise<Environment | Invoked> {
    let hear: (said: Said) => void = () => {};
    const ready = Promise.withResolvers<Said>();
    const api = await RuntimeApi.listen((said) => {
      ready.resolve(said);
      hear(said);
    });
    const environment = new Environment(options, api, launch(options, api.address));
    hear = (said) => environment.#onSaid(said);
    const ended = environment.#exited.then(() => undefined);
    const said = await Promise.race([ready.promise, ended]);
    if (said?.type === "ready") {
      environment.#signal("SIGSTOP");
      return environment;
    }
    await environment.stop();
    return toInvoked(said);
  }

  get isGone(): boolean {
    return this.#isGone;
  }

  /** Thaws the process for one event, and freezes it again. */
  async invoke(event: unknown): Promise<Invoked> {
    const { timeout } = this.#options;
    const said = Promise.withResolvers<Said | undefined>();
    let answer: Said | undefined;
    this.#onSaid = (one) => {
      if (one.type === "ready") said.resolve(answer);
      else answer = one;
    };
    this.#signal("SIGCONT");
    const kill = setTimeout(() => {
      answer = { type: "error", body: "timeout" };
      this.#signal("SIGKILL");
      // An answer that arrives at the same time must not bring the environment back into use.
      this.#isGone = true;
    }, timeout);
    const body = JSON.stringify(event);
    this.#api.deliver({ id: randomUUID(), endsAt: Date.now() + timeout, arn: ARN, body });
    await Promise.race([said.promise, this.#exited]);
    clearTimeout(kill);
    this.#onSaid = () => {};
    if (!this.#isGone) this.#signal("SIGSTOP");
    return toInvoked(answer);
  }

  async stop(): Promise<void> {
    this.#signal("SIGKILL");
    await this.#exited;
  }

  #signal(signal: NodeJS.Signals): void {
    if (!this.#isGone) this.#child.kill(signal);
  }
}

function launch(
  { module, handler, log, env, command }: FunctionOptions,
  address: string,
): ChildProcess {
  const [file, ...args] = command ?? [process.execPath, BOOTSTRAP, module, handler];
  const child = spawn(file, args, {
    stdio: ["ignore", log ?? "ignore", "inherit"],
    env: {
      ...process.env,
      AWS_LAMBDA_RUNTIME_API: address,
      LAMBDA_TASK_ROOT: dirname(module),
      _HANDLER: `${parse(module).name}.${handler}`,
      AWS_LAMBDA_FUNCTION_NAME: "test",
      AWS_LAMBDA_FUNCTION_VERSION: "$LATEST",
      AWS_LAMBDA_FUNCTION_MEMORY_SIZE: "512",
      AWS_LAMBDA_LOG_GROUP_NAME: "/aws/lambda/test",
      AWS_LAMBDA_LOG_STREAM_NAME: "test",
      AWS_REGION: "eu-central-1",
      AWS_ACCESS_KEY_ID: "test",
      AWS_SECRET_ACCESS_KEY: "test",
      NODE_DISABLE_COLORS: "1",
      ...env,
    },
  });
  return tracked(child);
}

function toInvoked(answer: Said | undefined): Invoked {
  if (answer === undefined || answer.type === "ready") return { type: "exit" };
  if (answer.type === "response") return { type: "response", result: JSON.parse(answer.body) };
  if (answer.body === "timeout") return { type: "timeout" };
  return { type: "error", error: JSON.parse(answer.body) };
}
