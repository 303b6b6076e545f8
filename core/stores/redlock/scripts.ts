import { script } from "../../redis/redis.ts";

/**
 * KEYS: the locks, their fences, the generation. ARGV: owner, generation, tokens. 0: not ours, and nothing was changed.
 *
 * Nothing is brought down. Digits are compared as text: Lua's numbers end at 53 bits, tokens at 63.
 */
export const LIFT = script(`
  local n = (#KEYS - 1) / 2
  local function lift(key, least)
    local now = redis.call('GET', key) or '0'
    if #now < #least or (#now == #least and now < least) then redis.call('SET', key, least) end
  end
  for i = 1, n do
    if redis.call('GET', KEYS[i]) ~= ARGV[1] then return 0 end
  end
  lift(KEYS[#KEYS], ARGV[2])
  for i = 1, n do lift(KEYS[n + i], ARGV[2 + i]) end
  return 1
`);

/** KEYS: the generation. */
export const GENERATION = script("return redis.call('GET', KEYS[1]) or '0'", { reads: true });
