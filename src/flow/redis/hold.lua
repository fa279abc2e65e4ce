-- Holds places that several daemons share, or waits for them: those that came first have them. KEYS: the
-- claims by when they came, the same by when they lapse. ARGV: how many places there are, for how many
-- milliseconds a claim is good, how many there are of this daemon, their names each with 1 if somebody runs
-- in it already, the names of those that it has given up. Returns for each whether it is a place, 1 or 0.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local places, lease, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local function remove(name)
    redis.call('ZREM', KEYS[1], name)
    redis.call('ZREM', KEYS[2], name)
end
-- Of daemons that were killed, or cannot be heard any more.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))) do
    remove(name)
end
for i = 4 + 2 * count, #ARGV do
    remove(ARGV[i])
end
for i = 4, 3 + 2 * count, 2 do
    if ARGV[i + 1] == '1' then
        -- What runs comes first, whatever this server knew of it.
        redis.call('ZADD', KEYS[1], 0, ARGV[i])
    else
        redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', now), ARGV[i])
    end
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + lease * 1000), ARGV[i])
end
local held = {}
for i = 4, 3 + 2 * count, 2 do
    held[#held + 1] = redis.call('ZRANK', KEYS[1], ARGV[i]) < places and 1 or 0
end
for _, key in ipairs(KEYS) do
    -- By then it is renewed or empty.
    redis.call('PEXPIRE', key, lease)
end
return held
