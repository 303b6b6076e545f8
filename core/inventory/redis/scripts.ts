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
      quantity = tonumber(quantity), sku = sku }
  end

  local kind, sku, fence, owner, reservation, expiresIn, ids = unpack(ARGV, 1, 7)
  local n = (#ARGV - 7) / 2
  local records = redis.call('MGET', unpack(KEYS, 5, 4 + n))
  local isNew, wanted = false, 0
  for i = 1, n do
    isNew = isNew or not records[i]
    wanted = wanted + ARGV[6 + 2 * i]
  end

  local later = fence ~= '' and raise(KEYS[4], fence, owner)
  if isNew and later then return { 'late', later } end
  local units = read()
  if isNew and not units and kind ~= 'set' then return { 'unknown-sku' } end
  units = units or { 0, 0, 0, 0, 0 }

  local open, made
  if isNew and reservation ~= '' then
    local record = redis.call('GET', KEYS[5 + n])
    made = record and parse(record)
    if not made or made.kind ~= 'reserve' or made.outcome ~= 'applied' or made.sku ~= sku then
      return { 'unknown-reservation' }
    end
    local expiresAt = redis.call('ZSCORE', reservations, text(made.quantity) .. ' ' .. reservation)
    open = expiresAt and (kind == 'cancel' or tonumber(expiresAt) > now)
  end

  local takes = kind == 'decrement' or kind == 'reserve'
  if isNew and takes and wanted > units[1] then
    if putBack(units) == ${AT_ONCE} and wanted > units[1] then
      write(units)
      return { 'again' }
    end
  end

  local written, answer = {}, { 'done' }
  local function say(outcome, remaining, replayed)
    answer[#answer + 1] = outcome
    answer[#answer + 1] = remaining
    answer[#answer + 1] = replayed
  end

  for i = 1, n do
    local key, quantity, payload = KEYS[4 + i], ARGV[6 + 2 * i], ARGV[7 + 2 * i]
    local record = records[i] or written[key]
    local before = record and parse(record)
    if before and before.payload ~= payload then
      say('conflict', text(units[1]), 0)
    elseif before then
      say(before.outcome, before.remaining, 1)
    else
      quantity = made and made.quantity or tonumber(quantity)
      local id, outcome = string.sub(key, #ids + 1), 'applied'
      if takes and quantity > units[1] then outcome = 'sold-out' end
      if made and not open then outcome = 'closed' end
      if outcome == 'applied' then move(units, kind, quantity) end
      note(units, kind, quantity, outcome, id, reservation, fence)
      record = table.concat({ payload, outcome, text(units[1]), kind, text(quantity), sku }, ' ')
      redis.call('SET', key, record)
      written[key] = record
      if outcome == 'applied' and kind == 'reserve' then
        redis.call('ZADD', reservations, text(now + expiresIn), text(quantity) .. ' ' .. id)
      elseif outcome == 'applied' and made then
        redis.call('ZREM', reservations, text(quantity) .. ' ' .. reservation)
      end
      say(outcome, text(units[1]), 0)
    end
  end
  if isNew then write(units) end
  return answer
`);

/** KEYS: the stock, its reservations, its ledger. It answers how many it has put back, AT_ONCE or less. */
export const EXPIRE = script(`
  ${BOOKS}
  ${MOVE}
  ${PUT_BACK}
  local units = read()
  local count = units and putBack(units) or 0
  if count > 0 then write(units) end
  return { 'done', count }
`);

/** KEYS: the claim. ARGV: fence, its owner. */
export const CLAIM = script(`
  ${RAISE}
  local later = raise(KEYS[1], ARGV[1], ARGV[2])
  return later and { 'late', later } or { 'done' }
`);
