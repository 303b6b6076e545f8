import { quote } from "../core/lock/errors.ts";

/** A store's URL, taken apart. */
export interface StoreUrl {
  readonly scheme: string;

  /** The text after the scheme, for stores that are a path or a name. */
  readonly path: string;

  /** The parts of scheme://user:password@host:port,host:port/name?options. Throws a TypeError for bad ones. */
  readonly network: NetworkUrl | undefined;
}

export interface NetworkUrl {
  /** The first one, and all of them. */
  readonly host: string;
  readonly port: number | undefined;
  readonly hosts: readonly Host[];
  readonly user: string;
  readonly password: string;
  readonly name: string;
  readonly options: ReadonlyMap<string, string>;
}

export interface Host {
  /** Of IPv6 without brackets. */
  readonly host: string;
  readonly port: number | undefined;
}

/** Throws a TypeError that names what is wrong, and never shows a secret. */
export function parseStoreUrl(text: string): StoreUrl {
  const [, scheme, path] =
    /^([a-z][a-z0-9+.-]*):(.*)$/is.exec(typeof text === "string" ? text : "") ?? [];
  if (scheme === undefined || path === undefined) {
    throw new TypeError('a store is named by a URL such as "sqlite:lockstep.db"');
  }
  return {
    scheme: scheme.toLowerCase(),
    path,
    get network() {
      return path.startsWith("//") ? parseNetwork(text) : undefined;
    },
  };
}

function parseNetwork(text: string): NetworkUrl {
  const [url = null, ...others] = urlPerHost(text).map((one) => URL.parse(one));
  if (url === null || [url, ...others].some((one) => !one?.hostname)) throw notNetwork();
  // A character that ends the password early puts the @ behind it into a later part, and a # hides what is behind it.
  if (`${url.pathname}${url.search}`.includes("@") || text.includes("#")) throw notNetwork();
  const decode = (part: string) => {
    try {
      return decodeURIComponent(part);
    } catch {
      throw notNetwork();
    }
  };
  return {
    ...toHost(url),
    hosts: [url, ...others].flatMap((one) => (one ? toHost(one) : [])),
    user: decode(url.username),
    password: decode(url.password),
    name: decode(url.pathname.slice(1)),
    options: toOptions(url.searchParams),
  };
}

/** Throws a RangeError for an option that comes twice: one of its values would be ignored. */
function toOptions(given: URLSearchParams): ReadonlyMap<string, string> {
  const options = new Map<string, string>();
  for (const [option, value] of given) {
    if (options.has(option)) {
      throw new RangeError(`the store's URL has the option ${quote(option)} twice`);
    }
    options.set(option, value);
  }
  return options;
}

/** The message repeats no part of the URL: each part may belong to the password. */
function notNetwork(): TypeError {
  return new TypeError(
    "the store's URL is not USER:PASSWORD@HOST:PORT/NAME after its scheme; in user and password, " +
      "% is written %25, @ %40, / %2F, : %3A, ? %3F, # %23",
  );
}

/** A URL with several hosts is no URL to the platform: one for each host is. */
function urlPerHost(text: string): readonly string[] {
  const [, start, hosts, end] = /^([^:]+:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/s.exec(text) ?? [];
  return (hosts ?? "").split(",").map((host) => `${start}${host}${end}`);
}

function toHost({ hostname, port }: URL): Host {
  return {
    host: hostname.replace(/^\[|\]$/g, ""),
    port: port === "" ? undefined : Number(port),
  };
}

/** The options a store knows; anything else is refused, so that a misspelt option is not ignored. */
export function checkOptions(url: NetworkUrl, known: readonly string[]): void {
  for (const [option, value] of url.options) {
    if (known.includes(option) && value === "") {
      throw new RangeError(`the option ${option} of the store's URL is empty`);
    }
    if (known.includes(option)) continue;
    const others = known.length > 0 ? `there are ${known.join(", ")}` : "it has none";
    throw new TypeError(`a store's URL has no option ${quote(option)}; ${others}`);
  }
}

/** Returns the number that is the option's value, or `otherwise` without one. Throws a RangeError unless it has digits alone. */
export function numberOption({ options }: NetworkUrl, option: string, otherwise: number): number {
  const text = options.get(option) ?? String(otherwise);
  if (/^\d+$/.test(text)) return Number(text);
  const problem = `must be a whole number, not ${quote(text)}`;
  throw new RangeError(`the option ${option} of the store's URL ${problem}`);
}

/**
 * The PEM files named by the options ca, cert and key, or by the names that a store has for these. The ca `system` is the
 * authorities that the operating system trusts.
 */
export function readTls(
  { options }: NetworkUrl,
  names: Readonly<Record<"ca" | "cert" | "key", string>> = { ca: "ca", cert: "cert", key: "key" },
): Partial<Record<"ca" | "cert" | "key", string>> {
  const named = Object.entries(names).flatMap(([part, option]) => {
    const file = options.get(option);
    if (file === undefined) return [];
    const isSystem = part === "ca" && file === "system";
    return [[part, isSystem ? systemAuthorities() : readPem(option, file)]];
  });
  return Object.fromEntries(named);
}

function systemAuthorities(): string {
  return process.getBuiltinModule("node:tls").getCACertificates("system").join("\n");
}

function readPem(option: string, file: string): string {
  try {
    // An import of node:fs would load Node's streams.
    return process.getBuiltinModule("node:fs").readFileSync(file, "utf8");
  } catch (error) {
    throw new TypeError(`the store's option ${option} names a file that cannot be read`, {
      cause: error,
    });
  }
}
