import { open } from "../../infra/open.ts";
import { contend } from "../support/contend.ts";

/** contend URL NAME FILE CONTENDERS ROUNDS: increments an unprotected counter under the lock. */
const [url = "", name = "", file = "", contenders = "", rounds = ""] = process.argv.slice(2);
const { locks: store } = await open(url);
await contend(store, { name, file, contenders: Number(contenders), rounds: Number(rounds) });
await store.close();
