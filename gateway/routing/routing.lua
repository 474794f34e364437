-- Nodes that share this Redis, and the owners of virtual brokers: one hash, every verb atomic.
--
-- KEYS[1]  generation, owners (JSON), and a field node:<id> per node: incarnation, the time (microseconds of
--          Redis's clock) until which it counts as alive, and its description (JSON), with a space between.
--          A time that is further ahead than a session is from before the clock was put back (NTP, a fail-over to a
--          machine whose clock is behind): it counts anew from now, else a dead node would count as alive until then.
-- ARGV     beat id incarnation session_us gone_us description
--          publish id incarnation generation owners
--          leave id incarnation generation owners
-- Answers  beat: {time, generation, owners, {field, row, ...}}, or TAKEN and the microseconds for which another
--          process of this id still counts as alive.
--          publish, leave: the new generation; TAKEN: this process is not that node (any more); STALE: there is a
--          newer generation. A generation is at least the clock, so one of after a flush exceeds those before it.

local TAKEN, STALE = -1, -2
local verb, id, incarnation = ARGV[1], 'node:' .. ARGV[2], ARGV[3]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function parts(row)
  local who, alive_until = string.match(row, '^(%S+) (%d+) ')
  return who, tonumber(alive_until)
end

local mine = redis.call('HGET', KEYS[1], id)
local holder, alive_until
if mine then
  holder, alive_until = parts(mine)
end

if verb == 'beat' then
  local latest = now + tonumber(ARGV[4])
  local lives = string.format('%.0f', latest)
  local function counted_anew(field, row)
    local anew = string.gsub(row, '^(%S+) %d+ ', '%1 ' .. lives .. ' ')
    redis.call('HSET', KEYS[1], field, anew)
    return anew
  end
  if holder and holder ~= incarnation and alive_until > now then
    if alive_until > latest then
      counted_anew(id, mine)
      alive_until = latest
    end
    return { TAKEN, alive_until - now }
  end
  redis.call('HSET', KEYS[1], id, incarnation .. ' ' .. lives .. ' ' .. ARGV[6])
  local nodes = {}
  local fields = redis.call('HGETALL', KEYS[1])
  for at = 1, #fields, 2 do
    if string.sub(fields[at], 1, 5) == 'node:' then
      local row = fields[at + 1]
      local _, lived = parts(row)
      if lived + tonumber(ARGV[5]) < now then
        redis.call('HDEL', KEYS[1], fields[at])
      else
        nodes[#nodes + 1] = fields[at]
        nodes[#nodes + 1] = lived > latest and counted_anew(fields[at], row) or row
      end
    end
  end
  local generation, owners = unpack(redis.call('HMGET', KEYS[1], 'generation', 'owners'))
  return { string.format('%.0f', now), generation or '0', owners or '', nodes }
end

if holder ~= incarnation then
  return TAKEN
end
local generation = tonumber(redis.call('HGET', KEYS[1], 'generation') or 0)
if generation ~= tonumber(ARGV[4]) then
  return STALE
end
generation = string.format('%.0f', math.max(generation + 1, now))
redis.call('HSET', KEYS[1], 'generation', generation, 'owners', ARGV[5])
if verb == 'leave' then
  redis.call('HDEL', KEYS[1], id)
end
return generation
