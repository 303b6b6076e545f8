/** Returns a host as a URL has it: an IPv6 address in brackets. */
export function hostLiteral(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}
