-- Windows in Redis: every verb of the store, atomic because a script is.
--
-- KEYS     the windows; only apply takes more than one. A window is a hash of fence, owner, generation (of the claim),
--          format, origin (of its incarnation), and state: seq, sent (the number of the last send that was applied under
--          the fence), cursor, front, chunk (the front's), high (the highest chunk written, perhaps below that), aside
--          (how many are unsettled between cursor and front), with a blank between each two. Its other keys are named
--          after it and share its hash tag, hence its slot: <window>:leases, <window>:retries, <window>:aside (hashes),
--          <window>:bits:<chunk> (strings). Before 0.2 each part of the state was a field; a claim packs them.
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
-- Answers  create: the window's seq (>= 1), or GONE, or FENCED. apply: one such answer, or an error, for each window.
--          seq counts applied steps. A Redis
--          that restarted from an older file, or a replica that took over and lags, shows a lower one
--          than the writer has seen: to the writer that is GONE too. FENCED is also the answer to a send that
--          comes after a later one, as the network may bring one that its writer has given up.

local GONE, FENCED = -1, -2
local OLD = { 'seq', 'sent', 'cursor', 'front', 'chunk', 'high', 'aside' }
local verb = ARGV[1]
local window, leases, retries, bits, aside, SET, DELETED

local function select_window(name)
  window = name
  leases, retries, bits, aside = name .. ':leases', name .. ':retries', name .. ':bits:', name .. ':aside'
  SET = { L = leases, R = retries, A = aside }
  DELETED = { E = leases, F = retries, X = aside }
end

local function chunk_name(number)
  return bits .. string.format('%.0f', number)
end

local function drop_chunks(first, last)
  for number = first, last do
    redis.call('DEL', chunk_name(number))
  end
end

-- The parts of a state; none: the window was claimed, and never created.
local function parts(state)
  if state then
    return string.match(state, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
  end
end

local function drop_all(chunk, high)
  if chunk then
    drop_chunks(tonumber(chunk), tonumber(high))
  end
  redis.call('DEL', leases, retries, aside)
end

-- Performs the operations from ARGV[at] to ARGV[last]; returns the new cursor, front, its chunk, the highest chunk, and
-- the number of records aside.
local function perform(at, last, cursor, front, chunk, high, unsettled)
  while at <= last do
    local op = ARGV[at]
    if op == 'C' then
      local moved = tonumber(ARGV[at + 3])
      drop_chunks(chunk, math.min(moved - 1, high))
      cursor, front, chunk, unsettled = ARGV[at + 1], ARGV[at + 2], moved, ARGV[at + 4]
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
  return cursor, front, chunk, high, unsettled
end

local function keep(seq, sent, cursor, front, chunk, high, unsettled)
  local state = string.format('%.0f %s %s %s %.0f %.0f %s', seq, sent, cursor, front, chunk, high, unsettled)
  redis.call('HSET', window, 'state', state)
  return seq
end

-- fence seq send, then operations up to ARGV[last]
local function apply(at, last)
  local found = redis.call('HMGET', window, 'fence', 'state')
  local seq, sent, cursor, front, chunk, high, unsettled = parts(found[2])
  if not found[1] then
    return GONE
  elseif found[1] ~= ARGV[at] then
    return FENCED
  elseif not cursor or tonumber(seq) < tonumber(ARGV[at + 1]) then
    return GONE
  elseif tonumber(ARGV[at + 2]) < tonumber(sent) then
    return FENCED
  end
  return keep(tonumber(seq) + 1, ARGV[at + 2],
    perform(at + 3, last, cursor, front, tonumber(chunk), tonumber(high), unsettled))
end

-- apply (n, the n arguments of `apply`)*: the step of one window after the other. One that fails is its own window's.
if verb == 'apply' then
  local answers, at = {}, 2
  for nth, name in ipairs(KEYS) do
    select_window(name)
    local last = at + tonumber(ARGV[at])
    local done, answer = pcall(apply, at + 1, last)
    if not done then
      answer = redis.error_reply(type(answer) == 'table' and answer.err or answer)
    end
    answers[nth], at = answer, last + 1
  end
  return answers
end

select_window(KEYS[1])

-- create fence format origin operations...
if verb == 'create' then
  local fence, state = unpack(redis.call('HMGET', window, 'fence', 'state'))
  local seq, sent, _, _, chunk, high = parts(state)
  if not fence then
    return GONE
  elseif fence ~= ARGV[2] then
    return FENCED
  end
  drop_all(chunk, high)
  redis.call('HSET', window, 'format', ARGV[3], 'origin', ARGV[4])
  return keep(tonumber(seq or 0) + 1, sent or 0, perform(5, #ARGV, '0', '0', 0, -1, '0'))
end

-- The state that a node of before 0.2 has written; none: none has, since the last claim.
local function old_state()
  local found = redis.call('HMGET', window, unpack(OLD))
  if found[3] then
    return table.concat({
      found[1], found[2] or '0', found[3], found[4] or found[3], found[5], found[6], found[7] or '0'
    }, ' ')
  end
end

-- A fence that is newer than the window's. It is at least the clock in microseconds, so that one
-- handed out after a flush differs from every one handed out before it.
local function next_fence()
  local now = redis.call('TIME')
  local fence = tonumber(now[1]) * 1000000 + tonumber(now[2])
  fence = math.max(fence, tonumber(redis.call('HGET', window, 'fence') or 0) + 1)
  return string.format('%.0f', fence)
end

-- A node of before 0.2 has written the window last: its fields become the state.
local function pack_old()
  local state = old_state()
  if state then
    redis.call('HSET', window, 'state', state)
  end
  redis.call('HDEL', window, unpack(OLD))
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
  pack_old()
  redis.call('HSET', window, 'fence', fence, 'owner', ARGV[2])
  local format, state, origin = unpack(redis.call('HMGET', window, 'format', 'state', 'origin'))
  local seq, _, cursor, front, chunk, high, unsettled = parts(state)
  if cursor then
    keep(seq, 0, cursor, front, chunk, high, unsettled)
  end
  local chunks = {}
  for number = tonumber(chunk or 0), tonumber(high or -1) do
    local bytes = redis.call('GET', chunk_name(number))
    if bytes then
      chunks[#chunks + 1] = string.format('%.0f', number)
      chunks[#chunks + 1] = bytes
    end
  end
  return {
    fence, format, seq or false, cursor or false, front or false, chunks, redis.call('HGETALL', aside),
    redis.call('HGETALL', leases), redis.call('HGETALL', retries), origin,
  }
end

-- release fence: whether it was given up, as what was claimed and never created.
if verb == 'release' then
  local fence, state = unpack(redis.call('HMGET', window, 'fence', 'state'))
  if fence ~= ARGV[2] or state then
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
  local state = redis.call('HGET', window, 'state') or old_state()
  if not state then
    return { '0', 0, 0 }
  end
  local _, _, cursor, front, chunk, high, unsettled = parts(state)
  local settled = front - cursor - unsettled + settled_ahead(front, tonumber(chunk), tonumber(high))
  return { cursor, found, settled }
end

-- delete: the fence from which on there may be another window of that name.
local fence = next_fence()
local _, _, _, _, chunk, high = parts(redis.call('HGET', window, 'state') or old_state())
drop_all(chunk, high)
redis.call('DEL', window)
return fence
