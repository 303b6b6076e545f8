interface Faulty<Fault> {
  readonly calls: readonly unknown[];
  decide: (call: never, n: number, args: readonly unknown[]) => Fault | undefined;
}

/** Injects the fault into the n-th call from now on, counted from 1. Returns a function that says whether that call was made. */
export function strike<Fault>(client: Faulty<Fault>, n: number, fault: Fault): () => boolean {
  const target = client.calls.length + n;
  client.decide = (_, call) => (call === target ? fault : undefined);
  return () => client.calls.length >= target;
}
