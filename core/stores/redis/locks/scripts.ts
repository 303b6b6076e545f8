import { HIGHEST_GENERATION } from "../../../lock/checks.ts";
import type { Millis } from "../../../lock/time.ts";
import { script } from "../client/redis.ts";

/** How long a released lock is reserved for the waiter with the turn. After that, any client may claim the lock. */
const TURN: Millis = 500;

/** Returns the generation that was read, raised to the one that the client has seen: the server may have lost its data. */
const KEEP_GENERATION = `
  local function keep_generation(key, generation, seen)
    generation = generation or '0'
    if tonumber(generation) >= tonumber(seen) then return generation end
    redis.call('SET', key, seen)
    return seen
  end
`;

/**
 * KEYS: the locks, their turns, their fences, the generation. ARGV: owner, ttl, the step of the clock, the generation that
 * the client has seen. Nil: busy.
 *
 * A turn is the owner's if it names the id at the beginning of the owner's text, after 36 characters of the client and a "/".
 * An owner that claims again gets the same tokens. A token is at least the server's clock in microseconds, rounded down
 * to a step, and above the last token: even where the last tokens are lost (a restart, a failover), the next ones are
 * above them. Commands that can fail come before the locks are set: Redis rolls nothing back.
 */
export const CLAIM = script(`
  ${KEEP_GENERATION}
  local owner, ttl, n = ARGV[1], ARGV[2], (#KEYS - 1) / 3
  local found = redis.call('MGET', unpack(KEYS))
  for i = 1, n do
    local holder, turn = found[i], found[n + i]
    if holder and holder ~= owner then return false end
    if not holder and turn and string.sub(owner, 1, #turn - 37) ~= string.sub(turn, 38) then return false end
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  now = now - now % ARGV[3]
  local answer = { keep_generation(KEYS[#KEYS], found[#KEYS], ARGV[4]) }
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
    if found[n + i] then redis.call('DEL', KEYS[n + i]) end
  end
  for i = 1, n do redis.call('SET', KEYS[i], owner, 'PX', ttl) end
  return answer
`);

/**
 * KEYS: the locks, the generation. ARGV: owner, ttl, the generation that the client has seen, the owner's new text if it
 * has one. 0: another owner has one of the locks, or none has, and no lock was changed.
 */
export const RENEW = script(`
  ${KEEP_GENERATION}
  keep_generation(KEYS[#KEYS], redis.call('GET', KEYS[#KEYS]), ARGV[3])
  for i = 1, #KEYS - 1 do
    local owner = redis.call('GET', KEYS[i])
    if owner ~= ARGV[1] and owner ~= ARGV[4] then return 0 end
  end
  for i = 1, #KEYS - 1 do
    if ARGV[4] then redis.call('SET', KEYS[i], ARGV[4], 'KEEPTTL') end
    if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
  end
  return 1
`);

/** The channels of releases: after the prefix of all channels, followed by the lock's key. */
export const RELEASES = "released/";

/**
 * Gives the turn at a lock to the first waiter of its queue and wakes it. Skips waiters that cannot be notified. Without
 * one, tells those that watch the lock. Never fails: a lock is released in any case.
 */
const WAKE_NEXT = `
  local function wake_next(lock, turn, queue, channels)
    while true do
      local waiter = redis.pcall('ZPOPMIN', queue)[1]
      if not waiter then
        redis.pcall('PUBLISH', channels .. '${RELEASES}' .. lock, '')
        return
      end
      local receivers = redis.pcall('PUBLISH', channels .. string.sub(waiter, 1, 36), waiter)
      if type(receivers) == 'number' and receivers > 0 then
        redis.pcall('SET', turn, waiter, 'PX', ${TURN})
        return
      end
    end
  end
`;

/** KEYS: the locks, their turns, their queues. ARGV: channels, owner. 0: the owner did not have all of the locks. */
export const DROP = script(`
  ${WAKE_NEXT}
  local n, ours = #KEYS / 3, {}
  for i = 1, n do
    if redis.call('GET', KEYS[i]) == ARGV[2] then ours[#ours + 1] = i end
  end
  for _, i in ipairs(ours) do redis.call('DEL', KEYS[i]) end
  for _, i in ipairs(ours) do wake_next(KEYS[i], KEYS[n + i], KEYS[2 * n + i], ARGV[1]) end
  return #ours == n and 1 or 0
`);

/**
 * KEYS: the locks, their turns, their queues. ARGV: channels, waiter, the time of arrival or "", the time to live of a
 * queue without new entries.
 *
 * Returns the time until the first busy lock expires and the waiter's time of arrival in its queue; 0: no lock is busy,
 * and no queue has the waiter. A turn at one lock is passed on when another lock is busy.
 */
export const ENQUEUE = script(`
  ${WAKE_NEXT}
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
      wake_next(KEYS[i], KEYS[n + i], KEYS[2 * n + i], ARGV[1])
    end
  end
  return { left < 0 and left or math.max(left, 1), since }
`);

/** KEYS: the locks, their turns, their queues. ARGV: channels, waiter. Passes on a turn of the waiter. */
export const LEAVE = script(`
  ${WAKE_NEXT}
  local n = #KEYS / 3
  for i = 1, n do
    redis.call('ZREM', KEYS[2 * n + i], ARGV[2])
    if redis.call('GET', KEYS[n + i]) == ARGV[2] then
      redis.call('DEL', KEYS[n + i])
      wake_next(KEYS[i], KEYS[n + i], KEYS[2 * n + i], ARGV[1])
    end
  end
`);

/** KEYS: the locks. Returns the time until the last of them expires; -1: never; -2: all are free. */
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

/**
 * KEYS: the locks, their fences, their queues, the generation. ARGV: how many waiters to list. Returns the generation, then
 * owner, time left, token, number of waiters, and the first waiters with their times of arrival, of each.
 */
export const INSPECT = script(
  `
  local n, most = (#KEYS - 1) / 3, tonumber(ARGV[1])
  local answer = { redis.call('GET', KEYS[#KEYS]) or '0' }
  for i = 1, n do
    local lock, fence, queue = KEYS[i], KEYS[n + i], KEYS[2 * n + i]
    answer[i + 1] = {
      redis.call('GET', lock), redis.call('PTTL', lock), redis.call('GET', fence),
      redis.call('ZCARD', queue),
      most > 0 and redis.call('ZRANGE', queue, 0, most - 1, 'WITHSCORES') or {},
    }
  end
  return answer
`,
  { reads: true },
);

/**
 * KEYS: the generation. ARGV: the least new generation, the generation that the client has seen. Nil: the generation is
 * the highest one already.
 */
export const RAISE = script(`
  local generation = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(ARGV[2]))
  if generation >= ${HIGHEST_GENERATION} then return false end
  generation = math.max(generation + 1, tonumber(ARGV[1]))
  redis.call('SET', KEYS[1], string.format('%d', generation))
  return generation
`);
