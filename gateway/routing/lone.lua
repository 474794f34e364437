-- The node that stands alone with this Redis.
--
-- KEYS[1]  "<node> <incarnation>", expires
-- ARGV     hold node incarnation ms: it stands alone for so long. Answers nothing, or the node that does already.
--          free node incarnation: it does not any more.

local verb, own = ARGV[1], ARGV[2] .. ' ' .. ARGV[3]
local found = redis.call('GET', KEYS[1])
if verb == 'free' then
  return found == own and redis.call('DEL', KEYS[1]) or 0
end
local node = found and string.match(found, '^(.*) %S+$')
if node and node ~= ARGV[2] then
  return node
end
redis.call('SET', KEYS[1], own, 'PX', ARGV[4])
return false
