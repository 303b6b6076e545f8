import { checkOptionNames, type OptionNames } from "../lock/options.ts";

/** What a TLS connection takes besides the checks that Lockstep makes itself: PEM texts. */
interface Pem {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

const TLS_OPTIONS = { ca: true, cert: true, key: true } satisfies OptionNames<Pem>;

/** Throws a TypeError for other options of TLS, which would be ignored, or switch the checks off. */
export function checkTlsOptions(tls: Pem | undefined): void {
  checkOptionNames("tls", tls, TLS_OPTIONS);
}

/** Returns the PEM texts alone: other options of TLS might switch its checks off. */
export function pemOf({ ca, cert, key }: Pem): Pem {
  return { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
}
