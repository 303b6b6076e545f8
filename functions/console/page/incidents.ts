import { html } from "lit-html";
import type { IncidentRecord } from "../../telemetry/incident-records.ts";
import { clock, href, shortFence } from "./format.ts";
import { emptyLine, table } from "./parts.ts";
import { read } from "./server.ts";
import { type AnyView, view } from "./view.ts";

/** As JSON. */
type ShownIncident = Omit<IncidentRecord, "at"> & { readonly at: string };

/** The lost locks and refused writes that processes have left in the store. */
export function incidentsView(): AnyView {
  return view<{ readonly incidents: readonly ShownIncident[] }>({
    title: "Incidents",
    load: () => read("incidents"),
    draw: ({ incidents }) => {
      if (incidents.length === 0)
        return emptyLine(
          "In the last ten minutes, no process has reported a lost lock or a refused write.",
        );
      return table(
        "Lost locks and refused writes of the last ten minutes, newest first",
        ["Time", "What", "Process", "Lock", "Run", "Operation", "#Fence", "Why"],
        incidents.map(({ at, kind, process, lock, run, operationId, fence, why }) => [
          clock(at),
          html`<span class="badge ${kind}">${kind === "lost" ? "lock lost" : "write refused"}</span>`,
          process,
          lock && html`<a href=${href("locks", lock)}>${lock}</a>`,
          run && html`<a href=${href("runs", run)}>${run}</a>`,
          operationId,
          shortFence(fence),
          why,
        ]),
      );
    },
  });
}
