import { html } from "lit-html";
import type { QueuesAnswer } from "../shapes.ts";
import { formatDuration, href } from "./format.ts";
import { emptyLine, searchField, table } from "./parts.ts";
import { read } from "./server.ts";
import { type AnyView, type Route, view } from "./view.ts";

/** The queues with open runs. */
export function queuesView(route: Route): AnyView {
  return view<QueuesAnswer>({
    title: "Queues",
    load: () => read("queues", { filter: route.query.get("filter") ?? "" }),
    draw: ({ queues, total }) => html`
      <form class="filters" @submit=${(event: Event) => event.preventDefault()}>
        ${searchField(route, "filter", "Queue")}
      </form>
      ${
        total === 0
          ? emptyLine("No queue has open runs.")
          : table(
              total > queues.length
                ? `${queues.length} of ${total} queues with open runs`
                : "Queues with open runs",
              [
                ...["Queue", "#Running", "#Parked", "#Blocked", "#Due", "#Oldest due for"],
                ...["#Most at a time", "#Most per key"],
              ],
              queues.map(({ queue, running, parked, blocked, due, oldestDueFor, ...limits }) => [
                html`<a href="${href("runs")}?${new URLSearchParams({ queue })}">${queue}</a>`,
                ...[running, parked, blocked, due],
                due > 0 ? formatDuration(oldestDueFor) : undefined,
                ...[limits.concurrency, limits.perKey],
              ]),
            )
      }`,
  });
}
