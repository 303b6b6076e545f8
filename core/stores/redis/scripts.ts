import { HIGHEST_GENERATION } from "../../lock/checks.ts";
import { script } from "../../redis/redis.ts";

/**
 * KEYS: the locks, their fences, the generation. ARGV: owner, ttl, the clock's step in microseconds. Nil: busy.
 *
 * Who asks again holds it already, and is told the same tokens. A token is one more than the last one, and no less
 * than the server's clock in microseconds, rounded down to a step: where the last ones are lost (a restart, a
 * failover), the next ones are still above them. Counting comes first: it is what can fail, and nothing is undone.
 */
export const CLAIM = script(`
  local owner, ttl, n = ARGV[1], ARGV[2], (#KEYS - 1) / 2
  local ours = {}
  for i = 1, n do
    local holder = redis.call('GET', KEYS[i])
    if holder and holder ~= owner then return false end
    ours[i] = holder
  end
  local time = redis.call('TIME')
  local micros = time[1] * 1000000 + time[2]
  local now = string.format('%.0f', micros - micros % ARGV[3])
  local answer = { redis.call('GET', KEYS[#KEYS]) or '0' }
  for i = 1, n do
    local fence = KEYS[n + i]
    if not ours[i] and redis.call('INCR', fence) < tonumber(now) then
      redis.call('SET', fence, now)
    end
    answer[i + 1] = redis.call('GET', fence)
  end
  for i = 1, n do redis.call('SET', KEYS[i], owner, 'PX', ttl) end
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
 * Tells the first in a line that it is its turn. Who listens to nothing any more is skipped, as is one who may not
 * be told: a lock is given back in any case.
 */
const WAKE = `
  local function wake(line, channels)
    while true do
      local waiter = redis.call('ZPOPMIN', line)[1]
      if not waiter then return end
      local told = redis.pcall('PUBLISH', channels .. string.sub(waiter, 1, 36), waiter)
      if type(told) == 'number' and told > 0 then return end
    end
  end
`;

/** KEYS: the locks, their lines. ARGV: owner, channels. 0: not all of them were ours. */
export const DROP = script(`
  ${WAKE}
  local n, ours = #KEYS / 2, 0
  for i = 1, n do
    if redis.call('GET', KEYS[i]) == ARGV[1] then
      redis.call('DEL', KEYS[i])
      ours = ours + 1
      wake(KEYS[n + i], ARGV[2])
    end
  end
  return ours == n and 1 or 0
`);

/**
 * KEYS: the locks, their lines. ARGV: waiter, channels, since when it waits or "", how long a line lasts that nobody
 * enters. It answers how long the first busy lock lasts, and since when the waiter stands in its line; with 0, all
 * are free and it stands nowhere.
 *
 * What is free in front of others that are busy is passed on to who waits for that alone.
 */
export const STAND = script(`
  ${WAKE}
  local n, busy, left = #KEYS / 2, nil, 0
  for i = 1, n do
    local ttl = redis.call('PTTL', KEYS[i])
    if ttl ~= -2 and not busy then busy, left = i, ttl end
  end
  for i = 1, n do
    if i ~= busy then redis.call('ZREM', KEYS[n + i], ARGV[1]) end
  end
  if not busy then return { 0 } end
  local time = redis.call('TIME')
  local since = ARGV[3] ~= '' and ARGV[3] or time[1] .. string.format('%06d', time[2])
  redis.call('ZADD', KEYS[n + busy], since, ARGV[1])
  redis.call('PEXPIRE', KEYS[n + busy], ARGV[4])
  for i = 1, n do
    if redis.call('EXISTS', KEYS[i]) == 0 then wake(KEYS[n + i], ARGV[2]) end
  end
  return { left < 0 and left or math.max(left, 1), since }
`);

/** KEYS: the locks, their lines. ARGV: waiter, channels. Who was told meanwhile passes that on. */
export const LEAVE = script(`
  ${WAKE}
  local n, stood = #KEYS / 2, 0
  for i = 1, n do stood = stood + redis.call('ZREM', KEYS[n + i], ARGV[1]) end
  for i = 1, n do
    if stood == 0 and redis.call('EXISTS', KEYS[i]) == 0 then wake(KEYS[n + i], ARGV[2]) end
  end
`);

/** KEYS: the locks. How long until the last of them expires; -2: all are free. */
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

/** KEYS: the locks, their fences, the generation. It answers the last one, then owner, time left and token of each. */
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
