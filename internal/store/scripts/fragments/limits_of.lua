-- include: digits

-- Returns the limits that a setting has. Without a setting, or with one that can't be read, there is no limit. usual is that of all groups, for the setting of a
-- single one: where that has '-' for how many jobs run, or for how many start, it is as usual. running is how many jobs may run
-- at a time. The rate is kept by the generic cell rate algorithm, as virtual scheduling (ITU-T I.371). In its methods at is when the next
-- job would start if jobs started evenly, and false or nil if none has started.
local function limits_of(text, usual)
  local running, jobs, per, burst = string.match(text or '', '^([%d-]+) ([%d-]+) (%d+) (%d+)$')
  if running == '-' or jobs == '-' then
    local r, j, p, b = string.match(usual or '', '^(%d+) (%d+) (%d+) (%d+)$')
    if running == '-' then
      running = r
    end
    if jobs == '-' then
      jobs, per, burst = j, p, b
    end
  end
  local l = {running = tonumber(running) or 0, rated = (tonumber(jobs) or 0) > 0}
  if l.running == 0 then
    l.running = math.huge
  end
  if not l.rated then
    function l.allowed()
      return math.huge, 0
    end
    function l.bound()
    end
    return l
  end
  jobs, per, burst = tonumber(jobs), tonumber(per), math.max(tonumber(burst), 1)

  -- How far at is ahead of now.
  local function ahead(at, now)
    return math.max((tonumber(at or nil) or now) - now, 0)
  end

  -- Returns the time that at can be at most, if it is later: it is from before the rate was changed. It has to be written in place of at, or it
  -- would be as far ahead at the next look.
  function l.bound(at, now)
    local most = now + math.ceil(burst * per / jobs)
    return (tonumber(at or nil) or 0) > most and digits(most) or nil
  end

  -- Returns how many jobs may start now, and if none may, how long it is until one may (us).
  function l.allowed(at, now)
    local left = (burst - 1) * per - ahead(at, now) * jobs
    if left < 0 then
      return 0, math.ceil(-left / jobs)
    end
    return math.floor(left / per) + 1, 0
  end

  -- Returns what at is after n jobs have started.
  function l.started(at, now, n)
    return digits(now + ahead(at, now) + math.ceil(n * per / jobs))
  end

  return l
end
