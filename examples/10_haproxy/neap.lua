-- Loaded by each of HAProxy's threads; what they have in common is the panel.
require("neap.haproxy").open {
  panel = "/dev/shm/neap-example",
  policies = "policies",
}
