/* A client on libuv and libcurl that asks for the same COUNT times, behind a policy.  Break what it
 * asks, and see who answers then; edit the policy meanwhile, and it is reloaded.
 *
 *   cc client.c $(pkg-config --cflags --libs neap-engine libcurl) -o client
 *   ./client http://localhost:8016 /flags/new-checkout policies/flag_provider.lua 100 */
#include <curl/curl.h>
#include <neap/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

static uv_timer_t next, curl_timer;
static CURLM *multi;
static neap_guard *guard;
static neap_request request;
static int left;   /* calls to go */
static CURL *easy; /* one call at a time, so all of it is here once */
static neap_ticket ticket;
static char body[NEAP_BODY_MAX];
static size_t body_length;

static void on_event(void *data, const neap_event *event) {
  printf("event: %s\n", event->text); /* transitions, reloads, what is wrong with a policy */
}

static void fall_back(neap_fallback_cause cause, const neap_result *result) {
  neap_answer a = {0};
  if (neap_guard_fallback(guard, NULL, 0, cause, &request, result, &a))
    printf("%s: %d, %zu bytes\n", a.source, a.status, a.body_length);
  else
    puts("nobody answers"); /* the policy has no fallback for this */
  neap_answer_free(&a);
}

static void begin(uv_timer_t *timer) {
  if (left-- == 0) return; /* and nothing keeps the loop going */
  if (neap_guard_acquire(guard, NULL, 0, &ticket, NULL) > NEAP_ALLOW_BYPASS) {
    fall_back(NEAP_CAUSE_REFUSED, NULL);
    uv_timer_start(timer, begin, 100, 0);
    return;
  }
  body_length = 0;
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)neap_guard_timeout_ms(guard)); /* 0: none */
  curl_multi_add_handle(multi, easy);
}

static void finish(CURLcode code) {
  neap_header headers[32]; /* Retry-After, Cache-Control, ... */
  size_t count = 0;
  struct curl_header *h = NULL;
  while (count < 32 && (h = curl_easy_nextheader(easy, CURLH_HEADER, -1, h)))
    headers[count++] = (neap_header){h->name, strlen(h->name), h->value, strlen(h->value)};
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  neap_result result = {
      .status = (int)status, .headers = headers, .header_count = count, .request = &request};
  if (!code && body_length < sizeof body) result.body = body, result.body_length = body_length;
  if (code) result.ended_by = NEAP_ENDED_TRANSPORT, result.error = curl_easy_strerror(code);
  if (code == CURLE_OPERATION_TIMEDOUT) result.ended_by = NEAP_ENDED_TIMEOUT;

  /* Report first: what the call came to is counted once, whoever answers then. */
  neap_outcome outcome = neap_guard_report(guard, &ticket, &result, NULL);
  if (outcome == NEAP_SUCCESS && result.body) {
    neap_answer good = {(int)status, headers, count, body, body_length, .source = NULL};
    neap_guard_remember(guard, NULL, 0, &request, &good);
  }
  if (outcome == NEAP_SUCCESS || outcome == NEAP_NEUTRAL)
    printf("primary: %ld, %zu bytes\n", status, body_length);
  else
    fall_back(neap_cause_of(outcome), &result);
  uv_timer_start(&next, begin, 100, 0);
}

static size_t on_body(char *bytes, size_t one, size_t count, void *data) {
  for (size_t i = 0; i < count && body_length < sizeof body; i++) body[body_length++] = bytes[i];
  return count; /* what does not fit is not needed: see neap_guard_wants_body() */
}

/* Lets curl work.  Never from curl's own callbacks: these only note what it waits for. */
static void work(curl_socket_t socket, int events) {
  int unused;
  curl_multi_socket_action(multi, socket, events, &unused);
  for (CURLMsg *message; (message = curl_multi_info_read(multi, &unused));) {
    finish(message->data.result);
    curl_multi_remove_handle(multi, easy); /* and the message with it */
  }
}

/* curl's bits for reading and writing are libuv's. */
static void on_ready(uv_poll_t *p, int status, int events) { work((int)(intptr_t)p->data, events); }
static void on_curl_timer(uv_timer_t *timer) { work(CURL_SOCKET_TIMEOUT, 0); }
static void free_handle(uv_handle_t *handle) { free(handle); }

static int on_timeout(CURLM *m, long ms, void *data) {
  if (ms < 0) return uv_timer_stop(&curl_timer);
  return uv_timer_start(&curl_timer, on_curl_timer, (uint64_t)ms, 0); /* 0: in the next turn */
}

static int on_socket(CURL *e, curl_socket_t socket, int what, void *data, void *known) {
  uv_poll_t *poll = known;
  if (!poll) {
    if (!(poll = malloc(sizeof *poll)) || uv_poll_init_socket(next.loop, poll, socket)) abort();
    poll->data = (void *)(intptr_t)socket;
    curl_multi_assign(multi, socket, poll);
  }
  if (what != CURL_POLL_REMOVE) return uv_poll_start(poll, what, on_ready);
  uv_close((uv_handle_t *)poll, free_handle); /* off the loop at once, freed later */
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: %s ORIGIN TARGET POLICY COUNT\n", argv[0]);
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0); /* a line at a time, also into a pipe */
  const char *policies[] = {argv[3]};
  neap_engine_options options = {.policies = policies, .policy_count = 1, .on_event = on_event};
  neap_engine *engine;
  char error[1024];
  uv_loop_t *loop = uv_default_loop();
  if (!neap_engine_open(loop, &options, &engine, error, sizeof error)) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  guard = neap_engine_guard_at(engine, 0);
  request = (neap_request){.target = argv[2], .target_length = strlen(argv[2])};
  left = atoi(argv[4]);

  if (!(easy = curl_easy_init()) || !(multi = curl_multi_init())) abort();
  curl_easy_setopt(easy, CURLOPT_URL, argv[1]);
  curl_easy_setopt(easy, CURLOPT_REQUEST_TARGET, argv[2]);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
  curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
  curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timeout);
  uv_timer_init(loop, &curl_timer);
  uv_timer_init(loop, &next);
  begin(&next);
  uv_run(loop, UV_RUN_DEFAULT);

  curl_easy_cleanup(easy);
  curl_multi_cleanup(multi);
  uv_close((uv_handle_t *)&next, NULL);
  uv_close((uv_handle_t *)&curl_timer, NULL);
  neap_engine_close(engine, NULL, NULL);
  uv_run(loop, UV_RUN_DEFAULT); /* until all is closed */
  return uv_loop_close(loop);
}
