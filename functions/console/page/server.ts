import { decoded } from "./view.ts";

const TOKEN = "lockstep-token";

/** The server refused the token, or there is none. */
export class TokenNeeded extends Error {}

/** Keeps the token for this tab only. */
export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN, token);
}

/** A link to the console may carry the token behind "#token=": browsers do not send that part to servers. */
export function takeTokenFromLink(): void {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (token === undefined) return;
  setToken(decoded(token));
  history.replaceState(undefined, "", "#/locks");
}

function refuseToken(token: string | null, problem: string): never {
  // Another one may have been entered since.
  if (sessionStorage.getItem(TOKEN) === token) sessionStorage.removeItem(TOKEN);
  throw new TokenNeeded(problem);
}

/** What the server's clock is ahead of this one, in milliseconds. */
let ahead = 0;

/** Returns the time of the server. */
export function now(): number {
  return Date.now() + ahead;
}

/** The console that the page shows, as its answers name it. */
let served: string | undefined;

type Parameters = Readonly<Record<string, string | undefined>>;

/** Reads from the console's server. Rejects with an Error whose message is for the user. */
export async function read<T>(path: string, parameters: Parameters = {}): Promise<T> {
  const given = Object.entries(parameters).flatMap(([name, value]) =>
    value ? [[name, value]] : [],
  );
  const response = await request(`${path}?${new URLSearchParams(given)}`, {});
  const from = response.headers.get("Lockstep-Console") ?? served;
  served ??= from;
  if (from === served) return bodyOf(response);
  // Another store, or other options: nothing on the page is true any more, nor in its dialogs.
  location.reload();
  return new Promise(() => {});
}

/** Asks the server to change something. The server refuses if it serves something else than the page shows. */
export async function act<T>(path: string, body: Readonly<Record<string, unknown>>): Promise<T> {
  const response = await request(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  });
  return bodyOf(response);
}

/** No answer of a healthy server takes longer. */
const TIMEOUT = 30_000;

async function request(path: string, init: RequestInit): Promise<Response> {
  const token = sessionStorage.getItem(TOKEN);
  // A header carries no other characters.
  const unfit = /[^\x20-\x7e]/u.exec(token ?? "")?.[0];
  if (unfit !== undefined) refuseToken(token, `A token has no such character: ${unfit}`);
  const response = await fetch(`/console/api/${path}`, {
    ...init,
    headers: {
      ...init.headers,
      "Lockstep-Console": served ?? "none",
      ...(token && { Authorization: `Bearer ${token}` }),
    },
    signal: AbortSignal.timeout(TIMEOUT),
  });
  if (response.status === 401) {
    refuseToken(token, token ? "The server refused this token." : "The console needs its token.");
  }
  return response;
}

async function bodyOf<T>(response: Response): Promise<T> {
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail ?? `the server answered ${response.status}`);
  const time = response.headers.get("Lockstep-Now");
  if (time !== null) ahead = Number(time) - Date.now();
  return body;
}
