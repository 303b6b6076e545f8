/** The part of `fetch` that stores over HTTP use. */
export type Fetch = (url: string, request: PostRequest) => Promise<FetchAnswer>;

/** The part of a Response that stores over HTTP use. */
export interface FetchAnswer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  readonly body: AsyncIterable<Uint8Array> | null;
  text(): Promise<string>;
}

interface PostRequest {
  readonly method: "POST";
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly redirect: "manual";
  readonly signal: AbortSignal;
}

/** The runtime's fetch. A function of its own: some runtimes refuse to call fetch as a method. */
export const runtimeFetch: Fetch = (url, request) => globalThis.fetch(url, request);

interface FetchFailure {
  readonly message: string;

  /** A certificate, ours or theirs, is not accepted. */
  readonly isUntrusted: boolean;

  /** The request was certainly not sent. */
  readonly isUnsent: boolean;
}

/** Tells why a fetch has failed without an answer. Node gives the reason in the error's cause; other runtimes do not. */
export function whyFetchFailed(error: unknown): FetchFailure {
  const why = ((error as Error).cause ?? error) as NodeError;
  const { code = "", message } = why;
  const isUntrusted = UNTRUSTED.test(code);
  return { message: message || code, isUntrusted, isUnsent: isUntrusted || isUnsent(why) };
}

interface NodeError {
  readonly message?: string;
  readonly code?: string;
  readonly syscall?: string;

  /** One error for each address of a host that has several. */
  readonly errors?: readonly NodeError[];
}

/** The error codes for a certificate, ours or theirs, that is not accepted. */
const UNTRUSTED = /CERT|UNABLE_TO_/;

/** Whether no connection was made. */
function isUnsent({ code, syscall, errors }: NodeError): boolean {
  if (errors) return errors.every(isUnsent);
  return syscall === "connect" || syscall === "getaddrinfo" || code === "UND_ERR_CONNECT_TIMEOUT";
}
