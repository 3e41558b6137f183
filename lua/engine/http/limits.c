/* limits.c: what a client is granted unless somebody says otherwise; see http.h. */
#include "http.h"

http_limits http_limits_default(void) {
  return (http_limits){
      .line_bytes = 8192,
      .head_bytes = 65536,
      .fields = 256,
      .body_bytes = 0,
      .connections = 10000,
      .queue_bytes = 262144,
      .header_ms = 10000,
      .idle_ms = 75000,
      .body_ms = 30000,
      .body_rate = 16,
      .send_ms = 30000,
      .linger_ms = 2000,
  };
}

http_limits http_limits_complete(http_limits l) {
  http_limits d = http_limits_default();
#define DEFAULT(name)                                                                              \
  if (!l.name) l.name = d.name
  DEFAULT(line_bytes);
  DEFAULT(head_bytes);
  DEFAULT(fields);
  DEFAULT(connections);
  DEFAULT(queue_bytes);
  DEFAULT(header_ms);
  DEFAULT(idle_ms);
  DEFAULT(body_ms);
  DEFAULT(body_rate);
  DEFAULT(send_ms);
  DEFAULT(linger_ms);
#undef DEFAULT
  return l;
}
