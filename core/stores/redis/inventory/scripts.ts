import { formatFence } from "../../../lock/fence.ts";
import { script } from "../client/redis.ts";

/**
 * KEYS: the stock, its reservations, its ledger. Reads and writes one sku: `units` are its units on hand, reserved,
 * sold and supplied, or nil if the sku does not exist.
 *
 * A script changes `units`, adds `entries`, and lists `released` reservations; `commit` writes all of them together,
 * the ledger first, since that write can fail. `commit` answers "halfway" if a later write fails, for example because the
 * user lacks a permission: Redis undoes nothing. An entry's number is its place in the ledger; NUL
 * separates its fields, since no id contains NUL. `text` formats whole numbers up to 2^53 with all digits: Lua itself
 * writes 14 of them, and some versions of Redis an exponent.
 */
const STOCK = `
  local stock, reservations, ledger = KEYS[1], KEYS[2], KEYS[3]
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local entries, released = {}, {}

  local function text(number) return string.format('%.0f', number) end

  local function read()
    local found = redis.call('HMGET', stock, 'onHand', 'reserved', 'sold', 'supplied')
    if not found[1] then return nil end
    for i = 1, 4 do found[i] = tonumber(found[i]) end
    return found
  end

  local function commit(units, answer, more)
    if #entries == 0 then return answer end
    redis.call('RPUSH', ledger, unpack(entries))
    local isDone, problem = pcall(function()
      redis.call('HSET', stock, 'onHand', text(units[1]), 'reserved', text(units[2]),
        'sold', text(units[3]), 'supplied', text(units[4]))
      if #released > 0 then redis.call('ZREM', reservations, unpack(released)) end
      if more then more() end
    end)
    return isDone and answer or { 'halfway', problem }
  end

  local at = text(now)
  local function addEntry(kind, quantity, outcome, remaining, operation, reservation, fence)
    entries[#entries + 1] = table.concat(
      { kind, quantity, outcome, remaining, operation, reservation, fence, at }, '\\0')
  end
`;

/** In each row, the changes of on hand, reserved and sold add up to the change of supplied. */
const MOVE_UNITS = `
  local MOVES = {
    set = { 1, 0, 0, 1 },
    restock = { 1, 0, 0, 1 },
    decrement = { -1, 0, 1, 0 },
    reserve = { -1, 1, 0, 0 },
    confirm = { 0, -1, 1, 0 },
    cancel = { 1, -1, 0, 0 },
    expire = { 1, -1, 0, 0 },
  }

  local function moveUnits(units, kind, quantity)
    local amount = kind == 'set' and quantity - units[1] or quantity
    for i, sign in ipairs(MOVES[kind]) do units[i] = units[i] + sign * amount end
  end
`;

/** The most reservations that one script releases: that takes a few milliseconds, during which Redis serves nothing else. */
export const MAX_RELEASED = 1_000;

/** Releases expired reservations and returns their number; if that is MAX_RELEASED, more may be left. */
const RELEASE_EXPIRED = `
  local function releaseExpired(units)
    released = redis.call('ZRANGEBYSCORE', reservations, '-inf', at, 'LIMIT', 0, ${MAX_RELEASED})
    for _, each in ipairs(released) do
      local quantity, id = string.match(each, '^(%d+) (.*)$')
      moveUnits(units, 'expire', tonumber(quantity))
      addEntry('expire', quantity, 'applied', text(units[1]), '', id, '')
    end
    return #released
  end
`;

/**
 * Claims a resource for a fence. Returns nothing, or the current fence of the resource if the new one is late.
 *
 * A server that has lost tokens may issue one of them again. So a claim also stores the owner, and of two owners with
 * equal tokens the second is late. Fences are compared as texts of fixed width: Lua's numbers lack the 64 bits of a
 * token.
 */
const RAISE_CLAIM = `
  local function raiseClaim(claim, fence, owner)
    local held = redis.call('GET', claim)
    local current = held and string.sub(held, 1, ${formatFence(0, 0n).length}) or ''
    local ours = fence .. ' ' .. owner
    if current > fence or current == fence and held ~= ours then return current end
    if current < fence then redis.call('SET', claim, ours) end
  end
`;

/**
 * Applies a batch on one sku: all its new operations, in order, or nothing.
 *
 * KEYS: the stock, its reservations, its ledger, the claim; the record of each operation; the record of the reservation
 * to close. ARGV: kind, sku, fence or "", its owner, the reservation or "", the microseconds until a new reservation
 * expires, the prefix of operation keys; quantity and payload hash of each operation.
 *
 * A recorded operation keeps its result, whatever the fence; everything else is refused if the fence is late. A
 * record is the payload hash, the result, and the operation. `again`: many reservations had expired, some of them were
 * released, and nothing else was done.
 */
export const CHANGE = script(`
  ${STOCK}
  ${MOVE_UNITS}
  ${RELEASE_EXPIRED}
  ${RAISE_CLAIM}

  local function parse(record)
    local payload, outcome, remaining, kind, quantity, sku =
      string.match(record, '^(%S+) (%S+) (%d+) (%S+) (%d+) (.*)$')
    return { payload = payload, outcome = outcome, remaining = remaining, kind = kind,
      quantity = quantity, sku = sku }
  end

  local kind, sku, fence, owner, reservation, expiresIn, prefix = unpack(ARGV, 1, 7)
  local n = (#ARGV - 7) / 2
  local found = redis.call('MGET', unpack(KEYS, 5, 4 + n))
  local isNew, wanted = false, 0
  for i = 1, n do
    isNew = isNew or not found[i]
    wanted = wanted + ARGV[6 + 2 * i]
  end

  local later = fence ~= '' and raiseClaim(KEYS[4], fence, owner)
  if isNew and later then return { 'late', later } end
  local units = read()
  if isNew and not units and kind ~= 'set' then return { 'unknown-sku' } end
  units = units or { 0, 0, 0, 0 }

  local made, isOpen
  if isNew and reservation ~= '' then
    local record = redis.call('GET', KEYS[5 + n])
    made = record and parse(record)
    if not made or made.kind ~= 'reserve' or made.outcome ~= 'applied' or made.sku ~= sku then
      return { 'unknown-reservation' }
    end
    local expiresAt = redis.call('ZSCORE', reservations, made.quantity .. ' ' .. reservation)
    isOpen = expiresAt and (kind == 'cancel' or tonumber(expiresAt) > now)
  end

  local takes = kind == 'decrement' or kind == 'reserve'
  if isNew and takes and wanted > units[1] then
    if releaseExpired(units) == ${MAX_RELEASED} and wanted > units[1] then
      return commit(units, { 'again' })
    end
  end

  local records, written, answer = {}, {}, { 'done' }
  local function addResult(outcome, remaining, replayed)
    answer[#answer + 1] = outcome
    answer[#answer + 1] = remaining
    answer[#answer + 1] = replayed
  end

  for i = 1, n do
    local key, quantity, payload = KEYS[4 + i], ARGV[6 + 2 * i], ARGV[7 + 2 * i]
    local record = found[i] or records[key]
    local prior = record and parse(record)
    if prior and prior.payload ~= payload then
      addResult('conflict', text(units[1]), 0)
    elseif prior then
      addResult(prior.outcome, prior.remaining, 1)
    else
      local outcome = 'applied'
      if made then quantity = made.quantity end
      if takes and tonumber(quantity) > units[1] then outcome = 'sold-out' end
      if made and not isOpen then outcome = 'closed' end
      if outcome == 'applied' then moveUnits(units, kind, tonumber(quantity)) end
      local id, remaining = string.sub(key, #prefix + 1), text(units[1])
      addEntry(kind, quantity, outcome, remaining, id, reservation, fence)
      record = table.concat({ payload, outcome, remaining, kind, quantity, sku }, ' ')
      records[key] = record
      written[#written + 1] = key
      written[#written + 1] = record
      addResult(outcome, remaining, 0)
    end
  end
  if not isNew then
    -- WAIT counts the replicas that have what this connection has written: since Redis 7.2, any replica if that is nothing.
    redis.call('SET', KEYS[5], found[1])
    return answer
  end

  if isOpen then released = { made.quantity .. ' ' .. reservation } end
  return commit(units, answer, function()
    redis.call('MSET', unpack(written))
    if kind == 'reserve' and answer[2] == 'applied' then
      local id = string.sub(KEYS[5], #prefix + 1)
      redis.call('ZADD', reservations, text(now + expiresIn), ARGV[8] .. ' ' .. id)
    end
  end)
`);

/** KEYS: the stock, its reservations, its ledger. Answers how many reservations were released, at most MAX_RELEASED. */
export const EXPIRE = script(`
  ${STOCK}
  ${MOVE_UNITS}
  ${RELEASE_EXPIRED}
  local units = read()
  if not units then return { 'done', 0 } end
  local count = releaseExpired(units)
  return commit(units, { 'done', count })
`);

/** KEYS: the claim. ARGV: fence, its owner. */
export const CLAIM_FENCE = script(`
  ${RAISE_CLAIM}
  local later = raiseClaim(KEYS[1], ARGV[1], ARGV[2])
  if later then return { 'late', later } end
  -- Written again when it was claimed before: see the replay of a change.
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
  return { 'done' }
`);

/** KEYS: the ledger. ARGV: how many entries, and before which one. Answers the number of the first entry, and all of them. */
export const READ_LEDGER = script(
  `
  local last = math.min(redis.call('LLEN', KEYS[1]), ARGV[2] - 1)
  local first = math.max(last - ARGV[1], 0)
  if last <= first then return { 0, {} } end
  local function text(number) return string.format('%.0f', number) end
  return { first + 1, redis.call('LRANGE', KEYS[1], text(first), text(last - 1)) }
`,
  { reads: true },
);

/** KEYS: the reservations. ARGV: how many. Answers each as "MICROSECONDS QUANTITY ID", the first to expire first. */
export const READ_RESERVATIONS = script(
  `
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local found = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
  local answer = {}
  for i = 1, #found, 2 do
    answer[#answer + 1] = string.format('%.0f %s', math.max(found[i + 1] - now, 0), found[i])
  end
  return answer
`,
  { reads: true },
);
