--- What half_open.decide is given: how the probes of the round under way have done.

---@class (exact) neap.Round
---@field succeeded integer probes that were reported as successes, the one just now included
---@field failed integer likewise as failures: timeouts are, and slow ones if there is a slow_rate
---@field in_flight integer probes that are still under way

--- The round of a snapshot.
---@param snapshot neap.Snapshot
---@return neap.Round
return function(snapshot)
  return {
    succeeded = snapshot.probes_succeeded,
    failed = snapshot.probes_failed,
    in_flight = snapshot.probes_in_flight,
  }
end
