--- A busted helper: the most aggressive collector there is, so that what is held too loosely shows.
--- A new cycle begins as soon as one ends, and every step pays for all that was ever allocated.
collectgarbage("incremental")
collectgarbage("setpause", 0)
collectgarbage("setstepmul", 1000)
