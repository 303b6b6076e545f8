import { formatFence } from "../../lock/fence.ts";

/**
 * KEYS: the stock, its reservations, its ledger. The books of one sku: `units` are its units on hand, reserved, sold
 * and supplied, or nothing where there is no such sku.
 *
 * A script changes `units`, notes `entries`, and says which reservations are gone; all of that is written together, the
 * ledger first: it is what can fail. An entry's number is its place in the ledger; NUL parts its fields, since no id
 * contains it. `text` has all digits of a whole number up to 2^53: Lua by itself writes 14 of them, and Redis in some
 * versions an exponent.
 */
export const BOOKS = `
  local stock, reservations, ledger = KEYS[1], KEYS[2], KEYS[3]
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local entries, gone = {}, {}

  local function text(number) return string.format('%.0f', number) end

  local function read()
    local found = redis.call('HMGET', stock, 'onHand', 'reserved', 'sold', 'supplied')
    if not found[1] then return nil end
    for i = 1, 4 do found[i] = tonumber(found[i]) end
    return found
  end

  local function write(units)
    if #entries == 0 then return end
    redis.call('RPUSH', ledger, unpack(entries))
    redis.call('HSET', stock, 'onHand', text(units[1]), 'reserved', text(units[2]),
      'sold', text(units[3]), 'supplied', text(units[4]))
    if #gone > 0 then redis.call('ZREM', reservations, unpack(gone)) end
  end

  local at = text(now)
  local function note(kind, quantity, outcome, remaining, operation, reservation, fence)
    entries[#entries + 1] = table.concat(
      { kind, quantity, outcome, remaining, operation, reservation, fence, at }, '\\0')
  end
`;

/** Each row adds up: what goes on hand, is reserved and is sold is what is supplied. */
export const MOVE = `
  local MOVES = {
    set = { 1, 0, 0, 1 },
    restock = { 1, 0, 0, 1 },
    decrement = { -1, 0, 1, 0 },
    reserve = { -1, 1, 0, 0 },
    confirm = { 0, -1, 1, 0 },
    cancel = { 1, -1, 0, 0 },
    expire = { 1, -1, 0, 0 },
  }

  local function move(units, kind, quantity)
    local amount = kind == 'set' and quantity - units[1] or quantity
    for i, sign in ipairs(MOVES[kind]) do units[i] = units[i] + sign * amount end
  end
`;

/** How many reservations one script puts back: it takes a few milliseconds, in which Redis does nothing else. */
export const AT_ONCE = 1_000;

/** Puts back reservations whose time is over, and answers how many; there may be more when they are AT_ONCE. */
export const PUT_BACK = `
  local function putBack(units)
    gone = redis.call('ZRANGEBYSCORE', reservations, '-inf', at, 'LIMIT', 0, ${AT_ONCE})
    for _, each in ipairs(gone) do
      local quantity, id = string.match(each, '^(%d+) (.*)$')
      move(units, 'expire', tonumber(quantity))
      note('expire', quantity, 'applied', text(units[1]), '', id, '')
    end
    return #gone
  end
`;

/**
 * Claims a resource for a fence, and answers nothing; or with the fence that it holds, where ours is late.
 *
 * A server that has lost tokens may give one of them again. So a claim names the owner too, and of two owners with
 * one token the one that came second is late. Fences are compared as the texts of fixed width that they are: Lua's
 * numbers do not have the 64 bits of a token.
 */
export const RAISE = `
  local function raise(claim, fence, owner)
    local held = redis.call('GET', claim)
    local current = held and string.sub(held, 1, ${formatFence(0, 0n).length}) or ''
    local ours = fence .. ' ' .. owner
    if current > fence or current == fence and held ~= ours then return current end
    if current < fence then redis.call('SET', claim, ours) end
  end
`;
