-- Takes a call out of each bucket, or out of none. KEYS: the buckets, each the time at which it will
-- be full, in microseconds. ARGV: for each the time between two calls, and how far beyond now a bucket
-- may fill up that has calls left. Returns 0, or the bucket that has none and when it has one again.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local wait, which, full = 0, 0, {}
for i, key in ipairs(KEYS) do
    local interval, ahead = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
    local at = math.max(tonumber(redis.call('GET', key) or '') or now, now)
    local lacks = at - ahead - now
    if lacks > wait then
        wait, which = lacks, i
    end
    full[i] = at + interval
end
if which > 0 then
    return {which, math.ceil(wait)}
end
for i, key in ipairs(KEYS) do
    -- A bucket that is full again is as good as none.
    redis.call('SET', key, string.format('%.3f', full[i]), 'PX', math.ceil((full[i] - now) / 1000))
end
return {0, 0}
