import { html, nothing, type TemplateResult } from "lit-html";
import type { HolderInfo, LockInfo, WaiterInfo } from "../../../core/lock/lock.ts";
import type { ConsoleInfo, LocksAnswer } from "../shapes.ts";
import { type Action, button } from "./actions.ts";
import { clock, formatDuration, href, shortFence, since } from "./format.ts";
import { type Cell, emptyLine, facts, searchField, table } from "./parts.ts";
import { read } from "./server.ts";
import { type AnyView, type Route, view } from "./view.ts";

type Shown<T extends HolderInfo> = Omit<T, "since"> & { readonly since?: string };

/** As JSON. */
type ShownLock = Omit<LockInfo, "about" | "queue"> & {
  readonly about?: Shown<HolderInfo>;
  readonly queue?: readonly Shown<WaiterInfo>[];
};

/** The held locks. */
export function locksView(route: Route): AnyView {
  return view<LocksAnswer<ShownLock>>({
    title: "Locks",
    load: () => read("locks", { filter: route.query.get("filter") ?? "" }),
    draw: ({ locks, total }) => html`
      <form class="filters" @submit=${(event: Event) => event.preventDefault()}>
        ${searchField(route, "filter", "Name, holder, command or run")}
      </form>
      ${
        total === 0
          ? emptyLine("No lock is held.")
          : table(
              total > locks.length
                ? `${locks.length} of ${total} held locks`
                : `${total} held locks`,
              ["Lock", "Holder", "For", "#Held for", "#Expires in", "#Fence", "#Waiting"],
              locks.map((lock) => [
                html`<a href=${href("locks", lock.name)}>${lock.name}</a>`,
                html`<span title=${lock.holder ?? ""}>${processOf(lock)}</span>`,
                workOf(lock),
                heldFor(lock),
                remaining(lock),
                shortFence(lock.fence),
                lock.waiters || undefined,
              ]),
            )
      }`,
  });
}

/** One lock. */
export function lockView(name: string): AnyView {
  return view<ShownLock>({
    title: name,
    load: () => read("lock", { name }),
    draw: (lock, info) => html`
      <h2>${name}</h2>
      ${lock.holder === undefined ? freeLock(lock) : heldLock(lock, info)}
      ${lock.queue?.length ? drawQueue(lock, lock.queue) : nothing}`,
  });
}

function freeLock({ fence, waiters }: ShownLock): TemplateResult {
  return html`
    <p>Nobody holds this lock.</p>
    ${facts([
      ["Last fence", shortFence(fence)],
      ["Waiting", waiters || undefined],
    ])}`;
}

function heldLock(lock: ShownLock, { readOnly, isDev }: ConsoleInfo): TemplateResult {
  const { about, holder, fence } = lock;
  const actions = [releaseOf, ...(isDev ? [freezeOf, killOf] : [])];
  return html`
    ${facts([
      ["Holder", holder],
      ["Host", about?.host],
      ["Process", about?.pid],
      ["Value", about?.value],
      ["Command", about?.command && html`<code>${about.command}</code>`],
      ["Run", about?.run && html`<a href=${href("runs", about.run)}>${about.run}</a>`],
      ["Step", about?.step],
      ["Since", clock(about?.since)],
      ["Held for", heldFor(lock)],
      ["Expires in", remaining(lock)],
      ["Fence", shortFence(fence)],
      ["Waiting", waitersOf(lock)],
    ])}
    ${readOnly ? nothing : actions.map((action) => button(action(lock)))}`;
}

/** Draws the queue at the store. */
function drawQueue({ waiters }: ShownLock, queue: readonly Shown<WaiterInfo>[]): TemplateResult {
  return table(
    waiters > queue.length ? `The first ${queue.length} of ${waiters} waiters` : "The waiters",
    ["#Route", "Waiter", "For", "#Has waited"],
    queue.map((about, i) => [
      i + 1,
      html`<span title=${about.id}>${processOf({ about, holder: about.id })}</span>`,
      workOf({ about }),
      heldFor({ about }),
    ]),
  );
}

function releaseOf({ name, fence = "" }: ShownLock): Action {
  return {
    title: "Release",
    name: "release",
    does: "Takes the lock from its holder, who may still be at work. The holder is fenced out: where fences are checked, its later writes are refused. Where they are not, two may now work at once.",
    target: name,
    body: () => ({ lock: name, fence }),
  };
}

function freezeOf({ name, fence = "", about }: ShownLock): Action {
  return {
    title: "Freeze holder 5 s",
    name: "freeze",
    does: `Stops process ${about?.pid} on ${about?.host} for 5 seconds. If its lock expires meanwhile, another holder comes, and the late writes of this one are refused.`,
    target: name,
    body: () => ({ lock: name, fence }),
  };
}

function killOf({ name, fence = "", about }: ShownLock): Action {
  return {
    title: "Kill holder",
    name: "kill",
    does: `Kills process ${about?.pid} on ${about?.host} at once. Its locks expire by themselves, and another process resumes its runs.`,
    target: name,
    body: () => ({ lock: name, fence }),
  };
}

/** The holder's process, or the id of a holder that does not name it. */
function processOf({ about, holder = "" }: Pick<ShownLock, "about" | "holder">): string {
  return about?.pid === undefined ? holder : `${about.host}:${about.pid}`;
}

function workOf({ about }: Pick<ShownLock, "about">): Cell {
  if (about?.value !== undefined) return `${about.value}, leader`;
  if (about?.run === undefined) return about?.command;
  return html`<a href=${href("runs", about.run)}>${about.run}</a> ${about.step}`;
}

function heldFor({ about }: Pick<ShownLock, "about">): string {
  return about?.since === undefined ? "" : formatDuration(since(about.since));
}

/** The number of waiters, where the store counts them: elsewhere, waiters of other processes ask again and again. */
function waitersOf({ waiters, queue }: ShownLock): Cell {
  if (queue !== undefined || waiters > 0) return waiters;
  return html`<span title="this store keeps no queue: waiters ask again and again">—</span>`;
}

function remaining({ expiresIn }: ShownLock): string {
  return expiresIn === undefined ? "not known" : formatDuration(expiresIn);
}
