/* A panel that processes share, by whoever has only installed neap. */
#include <neap/panel_shared.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
  char path[64], lock[80];
  neap_shared shared;
  neap_shared_problem problem;
  snprintf(path, sizeof path, "/dev/shm/neap-consumer-%ld", (long)getpid());
  if (!neap_shared_open(&shared, path, 10, &problem)) {
    fprintf(stderr, "%s\n", problem.text);
    return 1;
  }
  bool is_there = neap_shared_claim(&shared, "payments", 8, &problem) != NULL;
  bool is_found = neap_panel_find(shared.panel, "payments", 8) != NULL;
  snprintf(lock, sizeof lock, "%.60s.v2.lock", path);
  unlink(lock);
  unlink(shared.path);
  neap_shared_close(&shared);
  return is_there && is_found ? 0 : 2;
}
