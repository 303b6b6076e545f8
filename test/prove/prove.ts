import { availableParallelism } from "node:os";
import { type CampaignReport, campaign } from "../campaign/campaign.ts";
import { type CampaignStoreName, STORES, USUAL_STORES } from "../campaign/stores.ts";
import { byName, describe, type Replay, replay } from "../models/replay.ts";
import { MODELS, type Search, search } from "../models/spin.ts";
import { MUTANTS } from "../simulation/mutants.ts";
import { type Failure, type Hunt, hunt, record, simulate } from "../simulation/run.ts";
import type { Totals } from "../simulation/worker.ts";
import { type MeasuredCode, measuredCode } from "../support/commit.ts";

interface Bounds {
  /** How long schedules are simulated, in seconds. */
  readonly simulationSeconds: number;

  /** The schedules whose histories are replayed as paths of the models. */
  readonly replayedSchedules: number;

  /** The most schedules for each mutant. */
  readonly schedulesPerMutant: number;
  readonly stores: readonly CampaignStoreName[];
  readonly campaignSeconds: number;

  /** Campaigns go on until this many operations have ended. */
  readonly campaignOperations: number;

  /** But not longer than this. */
  readonly mostCampaignSeconds: number;
}

/** Less than ten minutes on two processors. */
export const QUICK: Bounds = {
  simulationSeconds: 180,
  replayedSchedules: 500,
  schedulesPerMutant: 10_000,
  stores: ["sqlite", "mariadb", "etcd", "redis"],
  // Long enough for each fault to be injected once.
  campaignSeconds: 60,
  campaignOperations: 0,
  mostCampaignSeconds: 3_600,
};

/** Some hours. */
export const LONG: Bounds = {
  simulationSeconds: 7_200,
  replayedSchedules: 5_000,
  schedulesPerMutant: 10_000,
  stores: USUAL_STORES,
  campaignSeconds: 600,
  campaignOperations: 1_000_000,
  mostCampaignSeconds: 3_600,
};

export interface ProveOptions extends Bounds {
  readonly command: string;
  readonly log: (line: string) => void;

  /** Called with the share that is done, and what is under way. */
  readonly onProgress: (share: number, what: string) => void;

  /** Gets the history of each failed campaign in the Trace Event Format. */
  readonly onFailure: (store: string, seed: number, trace: string) => void;
}

/** The result of one model, with the states of its mutants up to their violation. */
interface ProvenModel extends Search {
  readonly name: string;
  readonly mutants: readonly (Search & { readonly name: string })[];
}

/** What `npm run prove` measures. */
export interface Proof extends MeasuredCode {
  readonly date: string;

  /** Repeats the proof. */
  readonly command: string;
  readonly node: string;
  readonly processors: number;
  readonly models: readonly ProvenModel[];
  readonly simulation: Totals & {
    readonly firstSeed: number;
    readonly seconds: number;
    readonly failingSchedule?: Failure;
  };

  /** What was replayed of the simulation. Proofs of earlier versions do not have it. */
  readonly replay?: Omit<Replay, "refusal"> & {
    readonly schedules: number;

    /** The event that no path of a model has. */
    readonly refusal?: string;
  };
  readonly mutants: readonly Hunt[];
  readonly campaigns: readonly (CampaignReport & { readonly store: string })[];

  /** Campaigns that failed and have led to a change. Written by hand, and kept. */
  readonly failedCampaigns: readonly FailedCampaign[];
}

interface FailedCampaign extends Pick<CampaignReport, "version" | "operations"> {
  readonly store: string;
  readonly date: string;

  /** What was broken, and what was changed since. In Markdown. */
  readonly account: string;
}

/**
 * Searches the models, simulates schedules, replays some of them as paths of the models, hunts the mutants, and runs campaigns on
 * real servers. Those of the last proof on other stores are kept.
 */
export async function prove(
  options: ProveOptions,
  { campaigns, failedCampaigns }: Proof,
): Promise<Proof> {
  const code = measuredCode();
  const models = await searchModels(options);
  const simulation = await simulateSchedules(options);
  const replayed = await replaySchedules(simulation.firstSeed, options);
  const mutants = await hunt(MUTANTS, {
    first: 1,
    schedules: options.schedulesPerMutant,
    onProgress: (done) => options.onProgress(0.6 + (0.2 * done) / MUTANTS.length, "mutants"),
  });
  const proof = {
    date: new Date().toISOString().slice(0, 10),
    ...code,
    command: options.command,
    node: process.versions.node,
    processors: availableParallelism(),
    models,
    simulation,
    replay: replayed,
    mutants,
    campaigns,
    failedCampaigns,
  };
  return addCampaigns(proof, options);
}

/** Runs campaigns, which replace those of the proof on the same stores. */
export async function addCampaigns(
  proof: Proof,
  options: Parameters<typeof runCampaigns>[0],
): Promise<Proof> {
  const added = await runCampaigns(options);
  const all = new Map([...proof.campaigns, ...added].map((report) => [report.store, report]));
  const campaigns = Object.keys(STORES).flatMap((store) => all.get(store) ?? []);
  return { ...proof, campaigns };
}

async function searchModels({ onProgress }: ProveOptions): Promise<Proof["models"]> {
  const models: ProvenModel[] = [];
  for (const { name, mutants } of MODELS) {
    onProgress((0.1 * models.length) / MODELS.length, `model ${name}`);
    const searches = [];
    for (const mutant of mutants) searches.push({ name: mutant, ...(await search(name, mutant)) });
    models.push({ name, ...(await search(name)), mutants: searches });
  }
  return models;
}

async function simulateSchedules(options: ProveOptions): Promise<Proof["simulation"]> {
  const { simulationSeconds, onProgress } = options;
  // Other schedules each time.
  const firstSeed = Date.now() % 2 ** 31;
  const startedAt = performance.now();
  const elapsed = () => (performance.now() - startedAt) / 1_000;
  const over = AbortSignal.timeout(simulationSeconds * 1_000);
  const { totals, failure } = await simulate({
    first: firstSeed,
    schedules: Number.POSITIVE_INFINITY,
    signal: over,
    onProgress: (schedules) => {
      const share = Math.min(1, elapsed() / simulationSeconds);
      onProgress(0.1 + 0.5 * share, `${schedules} schedules`);
    },
  });
  const seconds = Math.round(elapsed());
  return { ...totals, firstSeed, seconds, ...(failure && { failingSchedule: failure }) };
}

async function replaySchedules(
  first: number,
  { replayedSchedules: schedules, onProgress }: ProveOptions,
): Promise<NonNullable<Proof["replay"]>> {
  onProgress(0.6, "replay as paths of the models");
  const histories = (await record({ first, schedules })).flatMap(byName);
  const { refusal, ...counts } = await replay(histories);
  return { schedules, ...counts, ...(refusal && { refusal: describe(refusal) }) };
}

async function runCampaigns(
  options: Omit<
    ProveOptions,
    "command" | "simulationSeconds" | "replayedSchedules" | "schedulesPerMutant"
  >,
): Promise<Proof["campaigns"]> {
  const { stores, log, onProgress, onFailure } = options;
  const campaigns = [];
  for (const name of stores) {
    onProgress(0.8 + (0.2 * campaigns.length) / stores.length, `campaign on ${name}`);
    await using store = await STORES[name](log);
    const seed = Date.now() % 1_000_000;
    const report = await campaign({
      ...{ store, seed, seconds: options.campaignSeconds, onProgress: log },
      operations: options.campaignOperations,
      mostSeconds: options.mostCampaignSeconds,
      onFailure: (trace) => onFailure(name, seed, trace),
    });
    campaigns.push({ store: name, ...report });
  }
  return campaigns;
}
