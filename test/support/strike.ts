interface Faulty<Fault> {
  readonly calls: readonly unknown[];
  decide: (call: never, n: number) => Fault | undefined;
}

/** Has the n-th call from now on, from 1, meet the fault. The returned function tells whether it has come to that. */
export function strike<Fault>(client: Faulty<Fault>, n: number, fault: Fault): () => boolean {
  const struck = client.calls.length + n;
  client.decide = (_, call) => (call === struck ? fault : undefined);
  return () => client.calls.length >= struck;
}
