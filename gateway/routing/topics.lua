-- The partitions of topics that nodes have seen, as content that all of them share.
--
-- KEYS[1]  the hash of routing.lua: its generation grows when a topic's content changes
-- KEYS[2]  a hash: by topic id, the routing version and the number of partitions, with a space between
-- ARGV     topic partitions topic partitions ...
-- Answers  how many topics have changed. gateway/core/routing/topics.py says when one does.

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local changes = 0
for at = 1, #ARGV, 2 do
  local topic, seen = ARGV[at], tonumber(ARGV[at + 1])
  local version, partitions = string.match(redis.call('HGET', KEYS[2], topic) or '0 0', '^(%d+) (%d+)$')
  if seen > tonumber(partitions) then
    redis.call('HSET', KEYS[2], topic, string.format('%d %d', tonumber(version) + 1, seen))
    changes = changes + 1
  end
end
if changes > 0 then
  local generation = tonumber(redis.call('HGET', KEYS[1], 'generation') or 0)
  redis.call('HSET', KEYS[1], 'generation', string.format('%.0f', math.max(generation + 1, now)))
end
return changes
