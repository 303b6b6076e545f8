/** What a TLS connection takes besides the checks that Lockstep makes itself: PEM texts. */
interface Pem {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** Returns the PEM texts alone: other options of TLS might switch its checks off. */
export function pemOf({ ca, cert, key }: Pem): Pem {
  return { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
}
