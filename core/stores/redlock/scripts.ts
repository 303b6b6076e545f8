import { script } from "../redis/client/redis.ts";

/**
 * KEYS: the locks, their fences, the generation. ARGV: owner, generation, tokens. 0: another owner has one of the locks,
 * or none has, and nothing was changed.
 *
 * Never lowers a value. Digits are compared as text: Lua's numbers have 53 bits, tokens have 63.
 */
export const RAISE_TOKENS = script(`
  local n = (#KEYS - 1) / 2
  local function raise(key, least)
    local now = redis.call('GET', key) or '0'
    if #now < #least or (#now == #least and now < least) then redis.call('SET', key, least) end
  end
  for i = 1, n do
    if redis.call('GET', KEYS[i]) ~= ARGV[1] then return 0 end
  end
  raise(KEYS[#KEYS], ARGV[2])
  for i = 1, n do raise(KEYS[n + i], ARGV[2 + i]) end
  return 1
`);

/** KEYS: the generation. */
export const GET_GENERATION = script("return redis.call('GET', KEYS[1]) or '0'", { reads: true });
