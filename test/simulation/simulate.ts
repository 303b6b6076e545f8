import { type Database, sql } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import type { CallEvent } from "../models/replay.ts";
import type { Fault } from "./faults.ts";
import { CHECKS, History, type Owned, type Violation } from "./history.ts";
import { checkEnd } from "./judge.ts";
import { Network, RemoteDatabase, StoreServer } from "./network.ts";
import type { ClientPlan, MachineFault, Operation, Plan } from "./plan.ts";
import { Client } from "./program.ts";
import { Random } from "./random.ts";
import { COUNTED, type Shared, SOLD } from "./shared.ts";
import { Machine, World } from "./world.ts";

export interface Result {
  /** In the order of the checks. */
  readonly violations: readonly Violation[];
  readonly faults: ReadonlyMap<Fault, number>;

  /** The requests that met a fault, as "client:number". */
  readonly faultyRequests: readonly string[];
  readonly acquisitions: number;
  readonly operations: number;
  readonly unknown: number;
  readonly overlaps: number;

  /** Claims and writes of late holders that the store refused. */
  readonly lateRefused: number;

  /** What happened, in order, with the true time in milliseconds. */
  readonly trace: readonly string[];

  /** The calls for locks, the counter, stock and runs, for the replay as paths of a model. */
  readonly events: readonly CallEvent[];
}

/** The longest time until the programs have ended, in milliseconds. */
const LONGEST_SCHEDULE = 120_000;

/** A real SQLite database in memory, with the product's tables and one for the effects of runs. */
export class Simulator {
  #database: Database | undefined;

  /** Executes a schedule. The same plan has the same result. */
  async run(plan: Plan): Promise<Result> {
    this.#database ??= await openDatabase();
    const schedule = new Schedule(plan, this.#database);
    const result = await schedule.run();
    // A schedule that hangs may leave a transaction open.
    if (result.violations.length > 0) this.#database = undefined;
    return result;
  }
}

/** All that happens runs in a world, also the migration. */
async function inWorld(work: () => Promise<void>): Promise<void> {
  const machine = new Machine("store", new Random(0));
  const world = new World(machine);
  let failure: unknown = new Error("the work has not ended");
  world.post(machine, 0, () => {
    work().then(
      () => {
        failure = undefined;
      },
      (error) => {
        failure = error;
      },
    );
  });
  await world.run();
  if (failure) throw failure;
}

async function openDatabase(): Promise<Database> {
  const database = sqliteDatabase(":memory:");
  await inWorld(async () => {
    await migrate(database);
    await database.batch([
      sql`CREATE TABLE simulated_effect (run TEXT NOT NULL, token INTEGER NOT NULL, at INTEGER NOT NULL)`,
    ]);
  });
  return database;
}

const TABLES = [
  ...["lock", "fence", "claim", "stock", "ledger", "reservation"],
  ...["run", "step", "signal", "backlog"],
];

class Schedule {
  readonly #plan: Plan;
  readonly #world: World;
  readonly #server: StoreServer;
  readonly #network: Network;
  readonly #database: Database;
  readonly #history = new History();
  readonly #shared: Shared;
  readonly #faults = new Map<Fault, number>();
  readonly #faultyRequests: string[] = [];

  /** The events of the store's owners. */
  readonly #owners = new Map<CallEvent, Owned>();
  readonly #trace: string[] = [];
  #running = 0;

  constructor(plan: Plan, database: Database) {
    this.#plan = plan;
    this.#database = database;
    const machine = new Machine("store", new Random(plan.seed, 1));
    this.#world = new World(machine);
    this.#server = new StoreServer(this.#world, machine, { database, plan });
    this.#network = new Network(this.#world, this.#server, {
      plan,
      onFault: (fault, { name }, request) => {
        this.#count(fault, `${name} request ${request.split(":")[1]}`);
        this.#faultyRequests.push(request);
      },
    });
    this.#server.onLocks = (rows, statements) => {
      const changed = this.#history.onLocks(rows, statements, this.#server.now);
      for (const owned of changed) this.#noteOwner(owned);
    };
    this.#server.onRepetition = (statements) => {
      for (const { values } of statements)
        for (const value of values) this.#history.repeated.add(value);
    };
    this.#world.onError = (error) => this.#history.violate("known errors", `uncaught: ${error}`);
    this.#shared = {
      plan,
      world: this.#world,
      server: this.#server,
      history: this.#history,
      outside: new Map(),
      answers: new Map(),
      calls: new Map(),
      ended: new Map(),
      cancelled: new Set(),
      events: [supplied(plan), ...[COUNTED, SOLD].map((sku) => ownerOf(stockLock(sku), 0))],
      note: (text) => this.#note(text),
    };
  }

  async run(): Promise<Result> {
    const { storeJumps, clients, ttl } = this.#plan;
    this.#world.post(this.#server.machine, 0, () => void this.#begin());
    for (const { at, span } of storeJumps) {
      this.#world.post(this.#server.machine, at, () => {
        this.#server.machine.wallOffset += span;
        this.#count("store clock jump", `by ${Math.round(span)} ms`);
      });
    }
    for (const client of clients) {
      const delay = new Random(this.#plan.seed, 2, numberOf(client)).between(1, ttl / 2);
      const { programs } = client;
      this.#world.post(this.#server.machine, delay, () => this.#start(client, programs));
    }
    this.#healWhenDone();
    const rested = await this.#world.run();
    if (!rested) this.#history.violate("progress", "the world does not come to rest");
    else await inWorld(() => checkEnd(this.#shared, this.#database));
    return this.#result();
  }

  async #begin(): Promise<void> {
    const at = this.#server.now;
    const stock = (sku: string, quantity: number) => sql`
      INSERT INTO lockstep_stock (sku, on_hand, reserved, sold, supplied, seq, changed_by)
      VALUES (${sku}, ${quantity}, 0, 0, ${quantity}, 0, ${String(at)})`;
    await this.#database.batch([
      ...TABLES.map((table) => ({ texts: [`DELETE FROM lockstep_${table}`], values: [] })),
      sql`DELETE FROM simulated_effect`,
      stock(SOLD, this.#plan.stock),
      stock(COUNTED, 0),
    ]);
  }

  /** Starts a process of the client. After a crash, the next one does what the last one had not finished. */
  #start(plan: ClientPlan, programs: readonly (readonly Operation[])[], life = 0): void {
    const { seed } = this.#plan;
    const index = numberOf(plan);
    const name = life === 0 ? plan.name : `${plan.name}${life + 1}`;
    const machine = new Machine(name, new Random(seed, 3, index, life), plan.rate);
    const left = programs.map((operations) => [...operations]);
    const working = new Set(left);
    this.#running += working.size;
    const restart = () => {
      this.#running -= working.size;
      this.#start(plan, left, life + 1);
    };
    this.#world.post(machine, 0, () => {
      this.#note(`${name} starts`);
      const database = new RemoteDatabase(this.#network, machine, {
        random: new Random(seed, 4, index, life),
        onRequest: (request) => {
          for (const fault of life > 0 ? [] : plan.faults) {
            if (fault.request !== request) continue;
            this.#world.post(this.#server.machine, fault.delay, () => {
              this.#strike(fault, machine, client, restart);
            });
          }
        },
      });
      const client = new Client(this.#shared, machine, { database, programs: left.length });
      for (const operations of left) {
        const run = client.run([...operations], () => operations.shift());
        void run.then(() => {
          working.delete(operations);
          this.#running -= 1;
        });
      }
    });
  }

  #strike(fault: MachineFault, machine: Machine, client: Client, restart: () => void): void {
    const { kind, span } = fault;
    if (!machine.isAlive || this.#network.isHealed) return;
    this.#count(kind, `${machine.name} for ${Math.round(span)} ms`);
    if (kind === "crash") {
      client.die();
      this.#world.post(this.#server.machine, span, restart);
    } else if (kind === "partition") {
      machine.cutOffUntil = this.#world.now + span;
    } else if (kind === "clock jump") {
      machine.wallOffset += span;
    } else {
      this.#world.freeze(machine, span, {
        stopsClock: kind === "freeze with its clock",
        timersFirst: machine.random.chance(0.5),
      });
    }
  }

  /** When all programs have ended, a last client without faults finishes what they have begun. */
  #healWhenDone(): void {
    const { machine } = this.#server;
    this.#world.post(machine, 50, () => {
      if (this.#running > 0 || this.#world.now < this.#plan.ttl) {
        if (this.#world.now < LONGEST_SCHEDULE) return this.#healWhenDone();
        this.#history.violate("progress", "a program has not ended");
        return;
      }
      this.#network.isHealed = true;
      this.#note("no more faults");
      const last = new Machine("last", new Random(this.#plan.seed, 5));
      const random = new Random(this.#plan.seed, 6);
      const database = new RemoteDatabase(this.#network, last, { random, onRequest: () => {} });
      const client = new Client(this.#shared, last, { database, programs: 1 });
      this.#world.post(last, 0, () => void client.recover(runsOf(this.#plan)));
    });
  }

  #count(fault: Fault, where: string): void {
    this.#faults.set(fault, (this.#faults.get(fault) ?? 0) + 1);
    this.#note(`fault: ${fault}, ${where}`);
  }

  #noteOwner(owned: Owned): void {
    const event = ownerOf(owned.name, this.#world.now);
    this.#shared.events.push(event);
    this.#owners.set(event, owned);
  }

  /** Returns the events, where the store's owners have the tokens that clients were told. */
  #events(): readonly CallEvent[] {
    const told = new Set<string>();
    // A store's clock that is stepped back may bring an owner back, and no model has that clock.
    const isStepped = this.#plan.storeJumps.length > 0;
    const events = this.#shared.events.filter(
      ({ operation }) => !isStepped || operation !== "owner",
    );
    return events.map((event) => {
      const owned = this.#owners.get(event);
      const fence = owned && this.#history.fenceOf(owned);
      const token = fence && String(fence);
      // A request that came twice may bring an owner back whose belief has ended.
      if (token === undefined || told.has(`${event.name} ${token}`)) return event;
      told.add(`${event.name} ${token}`);
      return { ...event, token };
    });
  }

  #note(text: string): void {
    this.#trace.push(`${this.#world.now.toFixed(1).padStart(8)} ms  ${text}`);
  }

  #result(): Result {
    const { violations, acquisitions, attempts, overlaps, refused } = this.#history;
    const all = [...attempts.values()].flat();
    return {
      violations: violations.toSorted((a, b) => CHECKS.indexOf(a.check) - CHECKS.indexOf(b.check)),
      faults: this.#faults,
      faultyRequests: this.#faultyRequests,
      acquisitions: acquisitions.length,
      operations: all.length,
      unknown: all.filter(({ end }) => end === "unknown" || end === "none").length,
      overlaps,
      lateRefused: refused.length,
      trace: this.#trace,
      events: this.#events(),
    };
  }
}

function supplied({ stock }: Plan): CallEvent {
  const name = stockLock(SOLD);
  return { time: 0, client: "store", type: "ok", operation: "supply", name, value: stock };
}

/** The store has given the lock to nobody who was told; otherwise the event gets a token. */
function ownerOf(name: string, time: number): CallEvent {
  return { time, client: "store", type: "ok", operation: "owner", name };
}

/** The same with fewer clients: the others keep their random numbers. */
function numberOf({ name }: ClientPlan): number {
  return name.charCodeAt(0);
}

function runsOf({ clients }: Plan): readonly string[] {
  const operations = clients.flatMap(({ programs }) => programs.flat());
  return [...new Set(operations.flatMap((one) => (one.kind === "run" ? [one.id] : [])))];
}
