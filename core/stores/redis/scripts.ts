import { HIGHEST_GENERATION } from "../../lock/checks.ts";
import type { Millis } from "../../lock/time.ts";
import { script } from "../../redis/redis.ts";

/** For how long a lock is kept for the waiter whose turn it is. Later than that, whoever comes first has it. */
const TURN: Millis = 500;

/**
 * KEYS: the locks, whose turn it is, the fences, the generation. ARGV: owner, ttl, waiter. Nil: busy.
 *
 * Who asks again holds it already, and is told the same tokens. A token is no less than the server's clock in
 * microseconds, and more than the last one: where the last ones are lost (a restart, a failover), the next ones are
 * above them all the same. What can fail comes before the locks are set: nothing is undone.
 */
export const CLAIM = script(`
  local owner, ttl, waiter, n = ARGV[1], ARGV[2], ARGV[3], (#KEYS - 1) / 3
  local found = redis.call('MGET', unpack(KEYS))
  for i = 1, n do
    local holder, turn = found[i], found[n + i]
    if holder and holder ~= owner then return false end
    if not holder and turn and turn ~= waiter then return false end
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local answer = { found[#KEYS] or '0' }
  for i = 1, n do
    local fence, token = KEYS[2 * n + i], found[2 * n + i]
    if not found[i] and tonumber(token or '0') < now then
      token = string.format('%.0f', now)
      redis.call('SET', fence, token)
    elseif not found[i] then
      redis.call('INCR', fence)
      token = redis.call('GET', fence)
    end
    answer[i + 1] = token
  end
  for i = 1, n do
    redis.call('SET', KEYS[i], owner, 'PX', ttl)
    if found[n + i] then redis.call('DEL', KEYS[n + i]) end
  end
  return answer
`);

/** KEYS: the locks. ARGV: owner, ttl. 0: not ours, and nothing was changed. */
export const RENEW = script(`
  for _, lock in ipairs(KEYS) do
    if redis.call('GET', lock) ~= ARGV[1] then return 0 end
  end
  for _, lock in ipairs(KEYS) do
    if redis.call('PTTL', lock) < tonumber(ARGV[2]) then redis.call('PEXPIRE', lock, ARGV[2]) end
  end
  return 1
`);

/**
 * Tells the first in a line that it is its turn. Who listens no longer is skipped, and so is one who may not be told:
 * a lock is given back in any case.
 */
const CALL = `
  local function call(line, turn, channels)
    while true do
      local waiter = redis.call('ZPOPMIN', line)[1]
      if not waiter then return end
      local told = redis.pcall('PUBLISH', channels .. string.sub(waiter, 1, 36), waiter)
      if type(told) == 'number' and told > 0 then
        redis.call('SET', turn, waiter, 'PX', ${TURN})
        return
      end
    end
  end
`;

/** KEYS: the locks, whose turn it is, their lines. ARGV: channels, owner. 0: not all of them were ours. */
export const DROP = script(`
  ${CALL}
  local n, ours = #KEYS / 3, 0
  for i = 1, n do
    if redis.call('GET', KEYS[i]) == ARGV[2] then
      redis.call('DEL', KEYS[i])
      ours = ours + 1
      call(KEYS[2 * n + i], KEYS[n + i], ARGV[1])
    end
  end
  return ours == n and 1 or 0
`);

/**
 * KEYS: the locks, whose turn it is, their lines. ARGV: channels, waiter, since when it waits or "", how long a line
 * lasts that nobody enters.
 *
 * It answers how long the first busy one lasts and since when the waiter stands in its line; 0: it is busy with none,
 * and stands nowhere. What it cannot use, as another one is busy, is passed on.
 */
export const STAND = script(`
  ${CALL}
  local waiter, n, busy, left, turns = ARGV[2], #KEYS / 3, nil, 0, {}
  for i = 1, n do
    local expiry = redis.call('PTTL', KEYS[i])
    turns[i] = redis.call('GET', KEYS[n + i])
    if expiry == -2 and turns[i] and turns[i] ~= waiter then
      expiry = redis.call('PTTL', KEYS[n + i])
    end
    if expiry ~= -2 and not busy then busy, left = i, expiry end
  end
  for i = 1, n do
    if i ~= busy then redis.call('ZREM', KEYS[2 * n + i], waiter) end
  end
  if not busy then return { 0 } end
  local time = redis.call('TIME')
  local since = ARGV[3] ~= '' and ARGV[3] or string.format('%.0f', time[1] * 1000000 + time[2])
  redis.call('ZADD', KEYS[2 * n + busy], since, waiter)
  redis.call('PEXPIRE', KEYS[2 * n + busy], ARGV[4])
  for i = 1, n do
    if i ~= busy and turns[i] == waiter then
      redis.call('DEL', KEYS[n + i])
      call(KEYS[2 * n + i], KEYS[n + i], ARGV[1])
    end
  end
  return { left < 0 and left or math.max(left, 1), since }
`);

/** KEYS: the locks, whose turn it is, their lines. ARGV: channels, waiter. Whose turn it is passes that on. */
export const LEAVE = script(`
  ${CALL}
  local n = #KEYS / 3
  for i = 1, n do
    redis.call('ZREM', KEYS[2 * n + i], ARGV[2])
    if redis.call('GET', KEYS[n + i]) == ARGV[2] then
      redis.call('DEL', KEYS[n + i])
      call(KEYS[2 * n + i], KEYS[n + i], ARGV[1])
    end
  end
`);

/** KEYS: the locks. How long until the last of them expires; -1: never; -2: all are free. */
export const FREE_IN = script(
  `
  local last = -2
  for _, lock in ipairs(KEYS) do
    local left = redis.call('PTTL', lock)
    if left == -1 then return -1 end
    last = math.max(last, left)
  end
  return last
`,
  { reads: true },
);

/** KEYS: the locks, the fences, the generation. It answers the last one, then owner, time left and token of each. */
export const LOOK = script(
  `
  local n = (#KEYS - 1) / 2
  local answer = { redis.call('GET', KEYS[#KEYS]) or '0' }
  for i = 1, n do
    local lock, fence = KEYS[i], KEYS[n + i]
    answer[i + 1] = { redis.call('GET', lock), redis.call('PTTL', lock), redis.call('GET', fence) }
  end
  return answer
`,
  { reads: true },
);

/** KEYS: the generation. ARGV: the least that it is raised to. Nil: it is as high as it can be. */
export const RAISE = script(`
  local generation = tonumber(redis.call('GET', KEYS[1]) or '0')
  if generation >= ${HIGHEST_GENERATION} then return false end
  generation = math.max(generation + 1, tonumber(ARGV[1]))
  redis.call('SET', KEYS[1], string.format('%d', generation))
  return generation
`);
