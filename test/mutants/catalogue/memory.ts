import { mutantsOf } from "../mutant.ts";

const LOCKS = ["test/stores/memory.test.ts"];

export const MEMORY = mutantsOf("core/stores/memory/locks.ts", LOCKS, []);
