import { script } from "../../redis/redis.ts";
import { AT_ONCE, BOOKS, MOVE, PUT_BACK, RAISE } from "./lua.ts";

/**
 * Does a batch on one sku: all that is new of it, in order, or nothing.
 *
 * KEYS: the stock, its reservations, its ledger, the claim; an operation for each order; that of the reservation to be
 * closed. ARGV: kind, sku, fence or "", its owner, the reservation or "", in how many microseconds a new one expires,
 * what stands before the id in an operation's key; quantity and payload of each order.
 *
 * What was done before keeps its answer, whoever asks; all else is refused where the fence is late. An operation's
 * record is its payload, its answer, and what it was. `again`: many reservations have expired, and some of them were
 * put back, but nothing else was done.
 */
export const CHANGE = script(`
  ${BOOKS}
  ${MOVE}
  ${PUT_BACK}
  ${RAISE}

  local function parse(record)
    local payload, outcome, remaining, kind, quantity, sku =
      string.match(record, '^(%S+) (%S+) (%d+) (%S+) (%d+) (.*)$')
    return { payload = payload, outcome = outcome, remaining = remaining, kind = kind,
      quantity = quantity, sku = sku }
  end

  local kind, sku, fence, owner, reservation, expiresIn, ids = unpack(ARGV, 1, 7)
  local n = (#ARGV - 7) / 2
  local found = redis.call('MGET', unpack(KEYS, 5, 4 + n))
  local isNew, wanted = false, 0
  for i = 1, n do
    isNew = isNew or not found[i]
    wanted = wanted + ARGV[6 + 2 * i]
  end

  local later = fence ~= '' and raise(KEYS[4], fence, owner)
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
    if putBack(units) == ${AT_ONCE} and wanted > units[1] then
      write(units)
      return { 'again' }
    end
  end

  local records, written, answer = {}, {}, { 'done' }
  local function say(outcome, remaining, replayed)
    answer[#answer + 1] = outcome
    answer[#answer + 1] = remaining
    answer[#answer + 1] = replayed
  end

  for i = 1, n do
    local key, quantity, payload = KEYS[4 + i], ARGV[6 + 2 * i], ARGV[7 + 2 * i]
    local record = found[i] or records[key]
    local before = record and parse(record)
    if before and before.payload ~= payload then
      say('conflict', text(units[1]), 0)
    elseif before then
      say(before.outcome, before.remaining, 1)
    else
      local outcome = 'applied'
      if made then quantity = made.quantity end
      if takes and tonumber(quantity) > units[1] then outcome = 'sold-out' end
      if made and not isOpen then outcome = 'closed' end
      if outcome == 'applied' then move(units, kind, tonumber(quantity)) end
      local id, remaining = string.sub(key, #ids + 1), text(units[1])
      note(kind, quantity, outcome, remaining, id, reservation, fence)
      record = table.concat({ payload, outcome, remaining, kind, quantity, sku }, ' ')
      records[key] = record
      written[#written + 1] = key
      written[#written + 1] = record
      say(outcome, remaining, 0)
    end
  end
  if not isNew then return answer end

  if isOpen then gone = { made.quantity .. ' ' .. reservation } end
  write(units)
  redis.call('MSET', unpack(written))
  if kind == 'reserve' and answer[2] == 'applied' then
    local id = string.sub(KEYS[5], #ids + 1)
    redis.call('ZADD', reservations, text(now + expiresIn), ARGV[8] .. ' ' .. id)
  end
  return answer
`);

/** KEYS: the stock, its reservations, its ledger. It answers how many it has put back, AT_ONCE or less. */
export const EXPIRE = script(`
  ${BOOKS}
  ${MOVE}
  ${PUT_BACK}
  local units = read()
  if not units then return { 'done', 0 } end
  local count = putBack(units)
  write(units)
  return { 'done', count }
`);

/** KEYS: the claim. ARGV: fence, its owner. */
export const CLAIM = script(`
  ${RAISE}
  local later = raise(KEYS[1], ARGV[1], ARGV[2])
  return later and { 'late', later } or { 'done' }
`);

/** KEYS: the ledger. ARGV: how many entries, and before which. It answers the number of the first, and all of them. */
export const READ = script(
  `
  local last = math.min(redis.call('LLEN', KEYS[1]), ARGV[2] - 1)
  local first = math.max(last - ARGV[1], 0)
  if last <= first then return { 0, {} } end
  local function text(number) return string.format('%.0f', number) end
  return { first + 1, redis.call('LRANGE', KEYS[1], text(first), text(last - 1)) }
`,
  { reads: true },
);
