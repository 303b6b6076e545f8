import { html, nothing, render, type TemplateResult } from "lit-html";
import { escapeControls } from "./format.ts";
import { act } from "./server.ts";

/** A change that the user confirms with a typed name. */
export interface Action {
  /** The words on the button. */
  readonly title: string;

  /** The name in the server's URL. */
  readonly name: string;

  /** The effect of the action, in a sentence or two. */
  readonly does: string;

  /** The name of the changed thing, which the user types. */
  readonly target: string;

  /** Further fields that the user fills in. */
  readonly fields?: readonly Field[];

  /** The body of the request, from the filled fields. May throw an Error with a message for the user. */
  body(fields: Readonly<Record<string, string>>): Readonly<Record<string, unknown>>;
}

interface Field {
  readonly name: string;
  readonly label: string;
  readonly value?: string;
  readonly isOptional?: boolean;
}

/** Draws a button that asks for the confirmation. */
export function button(action: Action): TemplateResult {
  return html`<button type="button" @click=${() => confirm(action)}>${action.title}…</button>`;
}

function confirm(action: Action): void {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "action");
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  draw(dialog, action);
  dialog.showModal();
}

interface Progress {
  /** Whether the server has not answered yet: the form cannot be sent again meanwhile. */
  readonly isPending?: boolean;
  readonly done?: string;
  readonly problem?: string;
}

function draw(
  dialog: HTMLDialogElement,
  action: Action,
  { isPending = false, done, problem }: Progress = {},
): void {
  const { title, does, target, fields = [] } = action;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    void perform(dialog, action, new FormData(event.currentTarget as HTMLFormElement));
  };
  const form = html`<form @submit=${submit}>
    <p>${does}</p>
    ${fields.map(
      ({ name, label, value = "", isOptional = false }) =>
        html`<p><label>${label}<input name=${name} value=${value} autocomplete="off" ?required=${!isOptional}></label></p>`,
    )}
    <p><label>Type <b>${escapeControls(target)}</b> to confirm<input name="confirm" autocomplete="off" spellcheck="false" required></label></p>
    <button class="danger" ?disabled=${isPending}>${title}</button>
    <button type="button" @click=${() => dialog.close()}>Do nothing</button>
  </form>`;
  render(
    html`<h2 id="action">${title}</h2>
      ${problem === undefined ? nothing : html`<p class="error" role="alert">${problem}</p>`}
      ${
        done === undefined
          ? form
          : html`<p role="status">${done}</p><button type="button" @click=${() => dialog.close()}>Close</button>`
      }`,
    dialog,
  );
}

async function perform(dialog: HTMLDialogElement, action: Action, data: FormData): Promise<void> {
  const { confirm: typed = "", ...fields } = Object.fromEntries(
    [...data].map(([name, value]) => [name, String(value)]),
  );
  draw(dialog, action, { isPending: true });
  try {
    const confirm = typed === escapeControls(action.target) ? action.target : typed;
    const { done } = await act<{ readonly done: string }>(`actions/${action.name}`, {
      ...action.body(fields),
      confirm,
    });
    draw(dialog, action, { done });
  } catch (error) {
    draw(dialog, action, { problem: (error as Error).message });
  }
}
