import { readFileSync } from "node:fs";
import { quote } from "../core/lock/errors.ts";

/** A store's URL, taken apart. `toString()` shows it without secrets. */
export interface StoreUrl {
  readonly scheme: string;

  /** What follows the scheme, for stores that are a path or a name. */
  readonly path: string;

  /** The parts of scheme://user:password@host:port/name?options. */
  readonly network: NetworkUrl | undefined;
}

export interface NetworkUrl {
  readonly host: string;
  readonly port: number | undefined;
  readonly user: string;
  readonly password: string;
  readonly name: string;
  readonly options: ReadonlyMap<string, string>;
}

/** Throws a TypeError that names what is wrong, and never shows a secret. */
export function parseStoreUrl(text: string): StoreUrl {
  const [, scheme, path] = /^([a-z][a-z0-9+.-]*):(.*)$/is.exec(text) ?? [];
  if (scheme === undefined || path === undefined) {
    throw new TypeError('a store is named by a URL such as "sqlite:lockstep.db"');
  }
  const network = path.startsWith("//") ? parseNetwork(scheme, text) : undefined;
  return { scheme: scheme.toLowerCase(), path, network };
}

function parseNetwork(scheme: string, text: string): NetworkUrl {
  const url = URL.parse(text);
  if (url === null || url.hostname === "") {
    throw new TypeError(`the store's URL ${quote(redact(text))} is not ${scheme}://host:port/name`);
  }
  if (url.pathname.includes("@")) {
    throw new TypeError(
      `in a store's URL, write @, / and : of user and password as %40, %2F and %3A`,
    );
  }
  return {
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? undefined : Number(url.port),
    user: decodeURIComponent(url.username),
    password: decodeURIComponent(url.password),
    name: decodeURIComponent(url.pathname.slice(1)),
    options: new Map(url.searchParams),
  };
}

/** A text as it may be shown: of every URL in it, whatever could be user and password is left out. */
export function redact(text: string): string {
  return text.replace(/\/\/\S*@/g, "//");
}

/** The options a store knows; anything else is refused, so that a misspelt option is not ignored. */
export function checkOptions(url: NetworkUrl, known: readonly string[]): void {
  for (const option of url.options.keys()) {
    if (known.includes(option)) continue;
    throw new TypeError(
      `a store's URL has no option ${quote(option)}; there are ${known.join(", ")}`,
    );
  }
}

/** The PEM files named by the options ca, cert and key. */
export function readTls({ options }: NetworkUrl): Partial<Record<"ca" | "cert" | "key", string>> {
  const named = (["ca", "cert", "key"] as const).flatMap((option) => {
    const file = options.get(option);
    return file === undefined ? [] : [[option, readPem(option, file)]];
  });
  return Object.fromEntries(named);
}

function readPem(option: string, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new TypeError(`the store's option ${option} names a file that cannot be read`, {
      cause: error,
    });
  }
}
