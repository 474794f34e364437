-- Rows of one share group, written by its coordinator's node only.
--
-- KEYS[1]  nodes and owners (gateway/routing/routing.lua)
-- KEYS[2]  rows of members; KEYS[3] rows of groups; KEYS[4] the log of changes (change_log.py)
-- ARGV     node, incarnation, virtual broker of the coordinator, the text of the change, how many entries the log keeps,
--          then a table ('members', 'groups'), a verb ('set', 'delete'), a field and a text for each row
-- Answers  the id of the log's new entry; REFUSED: the virtual broker has another owner, or another process is this node.

local REFUSED = -1
local row = redis.call('HGET', KEYS[1], 'node:' .. ARGV[1])
if not row or string.match(row, '^(%S+) ') ~= ARGV[2] then
  return REFUSED
end
local content = redis.call('HGET', KEYS[1], 'owners')
if not content or cjson.decode(content)['owners'][ARGV[3]] ~= ARGV[1] then
  return REFUSED
end
for at = 6, #ARGV, 4 do
  local key = ARGV[at] == 'members' and KEYS[2] or KEYS[3]
  if ARGV[at + 1] == 'set' then
    redis.call('HSET', key, ARGV[at + 2], ARGV[at + 3])
  else
    redis.call('HDEL', key, ARGV[at + 2])
  end
end
local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
local before = last and last[1] or ''
return redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[5], '*', 'before', before, 'change', ARGV[4])
