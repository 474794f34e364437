-- The records of repartitions, one a topic: written in the place of the version that was read.
--
-- KEYS[1]  a hash: by topic, the record (gateway/core/repartition/record.py) as JSON
-- ARGV     topic, the version that is replaced (0: there is none), the record ('': it is deleted)
-- Answers  1: written, 0: there is another version

local there = redis.call('HGET', KEYS[1], ARGV[1])
local version = there and cjson.decode(there).version or 0
if version ~= tonumber(ARGV[2]) then
  return 0
end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return 1
