-- One window in Redis: every verb of the store, atomic because a script is.
--
-- KEYS[1]  the window: a hash of format, fence, owner, generation (of the claim), origin (of its incarnation), seq, sent (the number of the
--          last send that was applied under the fence), cursor, front, chunk (the front's), high (the highest
--          chunk written, perhaps below that), aside (unsettled records between cursor and front). Its other keys are named after it and share its hash tag, hence
--          its slot: <window>:leases, <window>:retries, <window>:aside (hashes), <window>:bits:<chunk> (strings).
-- ARGV     verb and its arguments; apply and create then take operations:
--            C cursor front chunk aside  the cursor, the front and its chunk, and how many are unsettled
--                                  between cursor and front; chunks below that chunk are deleted
--            B chunk at bytes      bytes of the settled bitmap
--            L n (id lease)*       leases taken
--            D id deadline         the first 8 bytes of a lease, if there still is one
--            E n id*               leases ended
--            R n (offset retry)*   retries noted
--            F n offset*           retries forgotten
--            A n (stretch bits)*   unsettled records between cursor and front
--            X n stretch*          stretches that have none any more
-- Answers  apply, create: the window's seq (>= 1), or GONE, or FENCED. seq counts applied steps. A Redis
--          that restarted from an older file, or a replica that took over and lags, shows a lower one
--          than the writer has seen: to the writer that is GONE too. FENCED is also the answer to a send that
--          comes after a later one, as the network may bring one that its writer has given up.

local GONE, FENCED = -1, -2
local window, verb = KEYS[1], ARGV[1]
local leases, retries, bits = window .. ':leases', window .. ':retries', window .. ':bits:'
local aside = window .. ':aside'
local SET = { L = leases, R = retries, A = aside }
local DELETED = { E = leases, F = retries, X = aside }

local function chunk_name(number)
  return bits .. string.format('%.0f', number)
end

local function drop_chunks(first, last)
  for number = first, last do
    redis.call('DEL', chunk_name(number))
  end
end

local function drop_all()
  local chunk, high = unpack(redis.call('HMGET', window, 'chunk', 'high'))
  if chunk then
    drop_chunks(tonumber(chunk), tonumber(high))
  end
  redis.call('DEL', leases, retries, aside)
end

-- Performs the operations from ARGV[at] on; returns the new cursor, front, its chunk and the highest chunk.
-- The number of records aside has no part in it: it is written at once.
local function perform(at, cursor, front, chunk, high)
  while ARGV[at] do
    local op = ARGV[at]
    if op == 'C' then
      local moved = tonumber(ARGV[at + 3])
      drop_chunks(chunk, math.min(moved - 1, high))
      cursor, front, chunk = ARGV[at + 1], ARGV[at + 2], moved
      redis.call('HSET', window, 'aside', ARGV[at + 4])
      at = at + 5
    elseif op == 'B' then
      local number = tonumber(ARGV[at + 1])
      if number >= chunk then
        redis.call('SETRANGE', chunk_name(number), ARGV[at + 2], ARGV[at + 3])
        high = math.max(high, number)
      end
      at = at + 4
    elseif op == 'D' then
      local lease = redis.call('HGET', leases, ARGV[at + 1])
      if lease then
        redis.call('HSET', leases, ARGV[at + 1], ARGV[at + 2] .. string.sub(lease, 9))
      end
      at = at + 3
    else
      local count = tonumber(ARGV[at + 1])
      if SET[op] then
        redis.call('HSET', SET[op], unpack(ARGV, at + 2, at + 1 + 2 * count))
        at = at + 2 + 2 * count
      else
        redis.call('HDEL', DELETED[op], unpack(ARGV, at + 2, at + 1 + count))
        at = at + 2 + count
      end
    end
  end
  return cursor, front, chunk, high
end

local function keep(seq, sent, cursor, front, chunk, high)
  redis.call('HSET', window, 'seq', seq, 'sent', sent, 'cursor', cursor, 'front', front,
    'chunk', chunk, 'high', high)
  return seq
end

-- apply fence seq send operations...
if verb == 'apply' then
  local fence, seq, sent, cursor, front, chunk, high =
    unpack(redis.call('HMGET', window, 'fence', 'seq', 'sent', 'cursor', 'front', 'chunk', 'high'))
  if not fence then
    return GONE
  elseif fence ~= ARGV[2] then
    return FENCED
  elseif not cursor or tonumber(seq) < tonumber(ARGV[3]) then
    return GONE
  elseif tonumber(ARGV[4]) < tonumber(sent or 0) then
    return FENCED
  end
  return keep(tonumber(seq) + 1, ARGV[4], perform(5, cursor, front, tonumber(chunk), tonumber(high)))
end

-- create fence format origin operations...
if verb == 'create' then
  local fence, seq, sent = unpack(redis.call('HMGET', window, 'fence', 'seq', 'sent'))
  if not fence then
    return GONE
  elseif fence ~= ARGV[2] then
    return FENCED
  end
  drop_all()
  redis.call('HSET', window, 'format', ARGV[3], 'origin', ARGV[4])
  return keep(tonumber(seq or 0) + 1, sent or 0, perform(5, '0', '0', 0, -1))
end

-- A fence that is newer than the window's. It is at least the clock in microseconds, so that one
-- handed out after a flush differs from every one handed out before it.
local function next_fence()
  local now = redis.call('TIME')
  local fence = tonumber(now[1]) * 1000000 + tonumber(now[2])
  fence = math.max(fence, tonumber(redis.call('HGET', window, 'fence') or 0) + 1)
  return string.format('%.0f', fence)
end

-- claim owner generation: the fence, and everything else as it is. Each owner counts its own sends. Generation: of
-- the owners that the claimer knows, 0 for a node that stands alone; FENCED if a claimer knew a newer one.
if verb == 'claim' then
  local generation = tonumber(ARGV[3])
  if generation > 0 then
    if tonumber(redis.call('HGET', window, 'generation') or 0) > generation then
      return FENCED
    end
    redis.call('HSET', window, 'generation', ARGV[3])
  end
  local fence = next_fence()
  redis.call('HSET', window, 'fence', fence, 'owner', ARGV[2], 'sent', 0)
  local format, seq, cursor, front, chunk, high, origin =
    unpack(redis.call('HMGET', window, 'format', 'seq', 'cursor', 'front', 'chunk', 'high', 'origin'))
  local chunks = {}
  for number = tonumber(chunk or 0), tonumber(high or -1) do
    local bytes = redis.call('GET', chunk_name(number))
    if bytes then
      chunks[#chunks + 1] = string.format('%.0f', number)
      chunks[#chunks + 1] = bytes
    end
  end
  return {
    fence, format, seq, cursor, front or cursor, chunks, redis.call('HGETALL', aside),
    redis.call('HGETALL', leases), redis.call('HGETALL', retries), origin,
  }
end

-- release fence: whether it was given up, as what was claimed and never created.
if verb == 'release' then
  local fence, cursor = unpack(redis.call('HMGET', window, 'fence', 'cursor'))
  if fence ~= ARGV[2] or cursor then
    return 0
  end
  return redis.call('DEL', window)
end

-- The bits set in the chunks from the front on.
local function settled_ahead(front, chunk, high)
  local first, found = front - chunk * 65536, 0
  local byte = math.floor(first / 8)
  for at = first, byte * 8 + 7 do
    local here = string.byte(redis.call('GETRANGE', chunk_name(chunk), byte, byte)) or 0
    found = found + math.floor(here / 2 ^ (at - byte * 8)) % 2
  end
  found = found + redis.call('BITCOUNT', chunk_name(chunk), byte + 1, -1)
  for number = chunk + 1, high do
    found = found + redis.call('BITCOUNT', chunk_name(number))
  end
  return found
end

-- count at code: the cursor, the retries whose byte at this place is `code`, and the settled offsets.
if verb == 'count' then
  local at, code, found = tonumber(ARGV[2]) + 1, tonumber(ARGV[3]), 0
  for _, retry in ipairs(redis.call('HVALS', retries)) do
    if string.byte(retry, at) == code then
      found = found + 1
    end
  end
  local cursor, front, chunk, high, unsettled =
    unpack(redis.call('HMGET', window, 'cursor', 'front', 'chunk', 'high', 'aside'))
  if not cursor then
    return { '0', 0, 0 }
  end
  front = front or cursor
  local settled = front - cursor - (unsettled or 0) + settled_ahead(front, chunk, tonumber(high))
  return { cursor, found, settled }
end

-- delete: the fence from which on there may be another window of that name.
local fence = next_fence()
drop_all()
redis.call('DEL', window)
return fence
