import { html } from "lit-html";
import type { Incident } from "../shapes.ts";
import { clock, href, shortFence } from "./format.ts";
import { emptyLine, table } from "./parts.ts";
import { read } from "./server.ts";
import { type AnyView, view } from "./view.ts";

/** As JSON. */
type ShownIncident = Omit<Incident, "at"> & { readonly at: string };

/** The lost locks and refused writes of the server's own process. */
export function incidentsView(): AnyView {
  return view<{ readonly incidents: readonly ShownIncident[] }>({
    title: "Incidents",
    load: () => read("incidents"),
    draw: ({ incidents }, { watches }) => {
      if (!watches) {
        return html`<p>Processes keep their lost locks and refused writes to themselves. Open the page of <code>lockstep dev</code> or of a worker, or a run whose step was refused.</p>`;
      }
      if (incidents.length === 0)
        return emptyLine("This process has lost no lock, and no write of it was refused.");
      return table(
        "Lost locks and refused writes of this process, newest first",
        ["Time", "What", "Lock", "Run", "Operation", "#Fence", "Why"],
        incidents.map(({ at, kind, lock, run, operationId, fence, text }) => [
          clock(at),
          html`<span class="badge ${kind}">${kind === "lost" ? "lock lost" : "write refused"}</span>`,
          lock && html`<a href=${href("locks", lock)}>${lock}</a>`,
          run && html`<a href=${href("runs", run)}>${run}</a>`,
          operationId,
          shortFence(fence),
          text,
        ]),
      );
    },
  });
}
