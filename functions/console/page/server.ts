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
  setToken(decodeURIComponent(token));
  history.replaceState(undefined, "", "#/locks");
}

type Parameters = Readonly<Record<string, string | undefined>>;

/** Reads from the console's server. Rejects with an Error whose message is for the user. */
export async function read<T>(path: string, parameters: Parameters = {}): Promise<T> {
  const given = Object.entries(parameters).flatMap(([name, value]) =>
    value ? [[name, value]] : [],
  );
  return request(`${path}?${new URLSearchParams(given)}`, {});
}

/** Asks the server to change something. */
export async function act<T>(path: string, body: Readonly<Record<string, unknown>>): Promise<T> {
  return request(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  });
}

/** No answer of a healthy server takes longer. */
const TIMEOUT = 30_000;

async function request<T>(path: string, init: RequestInit): Promise<T> {
  const token = sessionStorage.getItem(TOKEN);
  const response = await fetch(`/console/api/${path}`, {
    ...init,
    headers: {
      ...init.headers,
      "Lockstep-Console": "1",
      ...(token && { Authorization: `Bearer ${token}` }),
    },
    signal: AbortSignal.timeout(TIMEOUT),
  });
  if (response.status === 401) throw new TokenNeeded();
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail ?? `the server answered ${response.status}`);
  return body;
}
