declare module "cloudflare:workers" {
  export class DurableObject {
    constructor(state: unknown, env: unknown);
  }
}
