-- Windows in Redis: every verb of the store, atomic because a script is.
--
-- KEYS     the windows; only apply takes more than one. A window is a hash of fence, owner, generation (of the claim),
--          format, origin (of its incarnation), and state: seq, sent (the number of the last send that was applied under
--          the fence), cursor, front, chunk (the front's), high (the highest chunk written, perhaps below that), aside
--          (how many are unsettled between cursor and front), epochs (of the leaders that wrote the records read, each
--          with the offset where it begins, the last one first; -1: not known; a node of before 0.3 leaves them out),
--          with a blank between each two. Its other keys are named
--          after it and share its hash tag, hence its slot: <window>:leases, <window>:retries, <window>:aside (hashes),
--          <window>:bits:<chunk> (strings). Before 0.2 each part of the state was a field; a claim packs them.
-- ARGV     verb and its arguments; apply and create then take the commands of a step, each with the number of its words:
--            n command suffix argument*   the key is the window's name with this suffix
--            3 EXTEND id deadline  the first 8 bytes of a lease, if there still is one
-- Answers  create: the window's seq (>= 1), or GONE, or FENCED. apply: one such answer, or an error, for each window.
--          seq counts applied steps. A Redis
--          that restarted from an older file, or a replica that took over and lags, shows a lower one
--          than the writer has seen: to the writer that is GONE too. FENCED is also the answer to a send that
--          comes after a later one, as the network may bring one that its writer has given up.
--
-- Redis runs this file from its top with each call, so apply comes first: it is nearly all calls. Its writer, the only
-- one under the fence, knows the state and sends it as it will be.

local GONE, FENCED = -1, -2
local call, match, ARGV = redis.call, string.match, ARGV

local function perform(window, at, last)
  while at <= last do
    local size, command = tonumber(ARGV[at]), ARGV[at + 1]
    if command ~= 'EXTEND' then
      call(command, window .. ARGV[at + 2], unpack(ARGV, at + 3, at + size))
    else
      local leases, id = window .. ':leases', ARGV[at + 2]
      local lease = call('HGET', leases, id)
      if lease then
        call('HSET', leases, id, ARGV[at + 3] .. string.sub(lease, 9))
      end
    end
    at = at + size + 1
  end
end

-- fence seq send, then the state as it will be and commands up to ARGV[last]. Without a state the writer has no claim.
local function apply(window, at, last)
  local found = call('HMGET', window, 'fence', 'state')
  local seq, sent = match(found[2] or '', '^(%S+) (%S+)')
  if not found[1] then
    return GONE
  elseif found[1] ~= ARGV[at] then
    return FENCED
  elseif not seq or last < at + 3 or tonumber(seq) < tonumber(ARGV[at + 1]) then
    return GONE
  elseif tonumber(ARGV[at + 2]) < tonumber(sent) then
    return FENCED
  end
  perform(window, at + 4, last)
  call('HSET', window, 'state', ARGV[at + 3])
  return ARGV[at + 1] + 1
end

-- apply (n, the n arguments of `apply`)*: the step of one window after the other. One that fails is its own window's.
if ARGV[1] == 'apply' then
  local answers, at = {}, 2
  for nth, window in ipairs(KEYS) do
    local last = at + ARGV[at]
    local done, answer = pcall(apply, window, at + 1, last)
    if not done then
      answer = redis.error_reply(type(answer) == 'table' and answer.err or answer)
    end
    answers[nth], at = answer, last + 1
  end
  return answers
end

local OLD = { 'seq', 'sent', 'cursor', 'front', 'chunk', 'high', 'aside' }
local verb, window = ARGV[1], KEYS[1]
local leases, retries, bits, aside = window .. ':leases', window .. ':retries', window .. ':bits:', window .. ':aside'

local function chunk_name(number)
  return bits .. string.format('%.0f', number)
end

-- The parts of a state; none: the window was claimed, and never created.
local function parts(state)
  if state then
    return match(state, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
  end
end

local function drop_all(chunk, high)
  if chunk then
    for number = tonumber(chunk), tonumber(high) do
      call('DEL', chunk_name(number))
    end
  end
  call('DEL', leases, retries, aside)
end

-- create fence format origin, then the state behind seq and sent, and commands.
if verb == 'create' then
  local fence, state = unpack(call('HMGET', window, 'fence', 'state'))
  local seq, sent, _, _, chunk, high = parts(state)
  if not fence then
    return GONE
  elseif fence ~= ARGV[2] then
    return FENCED
  end
  drop_all(chunk, high)
  perform(window, 6, #ARGV)
  seq = tonumber(seq or 0) + 1
  state = string.format('%.0f %s %s', seq, sent or '0', ARGV[5])
  call('HSET', window, 'format', ARGV[3], 'origin', ARGV[4], 'state', state)
  return seq
end

-- The state that a node of before 0.2 has written; none: none has, since the last claim.
local function old_state()
  local found = call('HMGET', window, unpack(OLD))
  if found[3] then
    return table.concat({
      found[1], found[2] or '0', found[3], found[4] or found[3], found[5], found[6], found[7] or '0'
    }, ' ')
  end
end

-- A fence that is newer than the window's. It is at least the clock in microseconds, so that one
-- handed out after a flush differs from every one handed out before it.
local function next_fence()
  local now = call('TIME')
  local fence = tonumber(now[1]) * 1000000 + tonumber(now[2])
  fence = math.max(fence, tonumber(call('HGET', window, 'fence') or 0) + 1)
  return string.format('%.0f', fence)
end

-- A node of before 0.2 has written the window last: its fields become the state.
local function pack_old()
  local state = old_state()
  if state then
    call('HSET', window, 'state', state)
  end
  call('HDEL', window, unpack(OLD))
end

-- claim owner generation: the fence, and everything else as it is. Each owner counts its own sends. Generation: of
-- the owners that the claimer knows, 0 for a node that stands alone; FENCED if a claimer knew a newer one.
if verb == 'claim' then
  local generation = tonumber(ARGV[3])
  if generation > 0 then
    if tonumber(call('HGET', window, 'generation') or 0) > generation then
      return FENCED
    end
    call('HSET', window, 'generation', ARGV[3])
  end
  local fence = next_fence()
  pack_old()
  call('HSET', window, 'fence', fence, 'owner', ARGV[2])
  local format, state, origin = unpack(call('HMGET', window, 'format', 'state', 'origin'))
  local seq, _, _, _, chunk, high = parts(state)
  if seq then
    state = string.gsub(state, ' %S+', ' 0', 1)
    call('HSET', window, 'state', state)
  end
  local chunks = {}
  for number = tonumber(chunk or 0), tonumber(high or -1) do
    local bytes = call('GET', chunk_name(number))
    if bytes then
      chunks[#chunks + 1] = string.format('%.0f', number)
      chunks[#chunks + 1] = bytes
    end
  end
  return {
    fence, format, state, chunks, call('HGETALL', aside),
    call('HGETALL', leases), call('HGETALL', retries), origin,
  }
end

-- release fence: whether it was given up, as what was claimed and never created.
if verb == 'release' then
  local fence, state = unpack(call('HMGET', window, 'fence', 'state'))
  if fence ~= ARGV[2] or state then
    return 0
  end
  return call('DEL', window)
end

-- The bits set in the chunks from the front on.
local function settled_ahead(front, chunk, high)
  local first, found = front - chunk * 65536, 0
  local byte = math.floor(first / 8)
  for at = first, byte * 8 + 7 do
    local here = string.byte(call('GETRANGE', chunk_name(chunk), byte, byte)) or 0
    found = found + math.floor(here / 2 ^ (at - byte * 8)) % 2
  end
  found = found + call('BITCOUNT', chunk_name(chunk), byte + 1, -1)
  for number = chunk + 1, high do
    found = found + call('BITCOUNT', chunk_name(number))
  end
  return found
end

-- count at code: the cursor, the retries whose byte at this place is `code`, and the settled offsets.
if verb == 'count' then
  local at, code, found = tonumber(ARGV[2]) + 1, tonumber(ARGV[3]), 0
  for _, retry in ipairs(call('HVALS', retries)) do
    if string.byte(retry, at) == code then
      found = found + 1
    end
  end
  local state = call('HGET', window, 'state') or old_state()
  if not state then
    return { '0', 0, 0 }
  end
  local _, _, cursor, front, chunk, high, unsettled = parts(state)
  local settled = front - cursor - unsettled + settled_ahead(front, tonumber(chunk), tonumber(high))
  return { cursor, found, settled }
end

-- delete: the fence from which on there may be another window of that name.
local fence = next_fence()
local _, _, _, _, chunk, high = parts(call('HGET', window, 'state') or old_state())
drop_all(chunk, high)
call('DEL', window)
return fence
