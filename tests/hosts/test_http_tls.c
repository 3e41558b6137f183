/* The proxy to an upstream by TLS: openssl plays it, with a certificate made for the test. */
#include "http_guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char directory[] = "/tmp/neap-tls-XXXXXX";
static char certificate[128], key[128];

static void open_tls(int port, const char *host, const char *ca_file) {
  static char url[64];
  snprintf(url, sizeof url, "https://%s:%d", host, port);
  open_to((proxy_options){.upstream = url, .ca_file = ca_file}, (http_limits){0});
  guard.timeout_ms = 8000;
}

/* ---- openssl --------------------------------------------------------------------------------- */

/* Runs it in `directory`, quietly. */
static pid_t run(const char *const *argv) {
  pid_t pid = fork();
  if (pid) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive a test that fails */
  int null = open("/dev/null", O_RDWR);
  dup2(null, 0), dup2(null, 1), dup2(null, 2);
  if (!chdir(directory)) execvp(argv[0], (char *const *)(uintptr_t)argv);
  _exit(127);
}

static int certificate_make(void **state) {
  static const char *const argv[] = {
      "openssl",  "req",           "-x509",   "-newkey",
      "rsa:2048", "-nodes",        "-days",   "2",
      "-subj",    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
      "-keyout",  "key.pem",       "-out",    "cert.pem",
      NULL};
  int status = 1;
  (void)state;
  if (!mkdtemp(directory)) return 1;
  snprintf(certificate, sizeof certificate, "%s/cert.pem", directory);
  snprintf(key, sizeof key, "%s/key.pem", directory);
  waitpid(run(argv), &status, 0);
  return status;
}

static int certificate_remove(void **state) {
  (void)state;
  char page[128];
  snprintf(page, sizeof page, "%s/page", directory);
  unlink(certificate), unlink(key), unlink(page);
  return rmdir(directory);
}

/* A server that sends files: "page" is the one there is. */
static pid_t serve_page(int *port) {
  char page[128], at[16];
  int listener =
      listen_at("127.0.0.1", 0); /* a port that is free, we may hope, a moment later, too */
  *port = port_of(listener);
  close(listener);
  snprintf(page, sizeof page, "%s/page", directory);
  FILE *file = fopen(page, "w");
  fputs("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret", file);
  fclose(file);
  snprintf(at, sizeof at, "%d", *port);
  const char *const argv[] = {"openssl", "s_server", "-accept", at,      "-cert", "cert.pem",
                              "-key",    "key.pem",  "-quiet",  "-HTTP", NULL};
  pid_t pid = run(argv);
  for (uint64_t end = now_ms() + WAIT_MS; now_ms() < end; turn()) {
    int c = socket_of(AF_INET);
    struct sockaddr_in a = loopback("127.0.0.1", *port);
    fcntl(c, F_SETFL, 0);
    int status = connect(c, (struct sockaddr *)&a, sizeof a);
    close(c);
    if (!status) return pid;
  }
  fail_msg("openssl s_server does not start");
  return pid;
}

static void stop(pid_t pid) {
  kill(pid, SIGTERM);
  waitpid(pid, NULL, 0);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

#define GET "GET /page HTTP/1.1\r\nHost: a\r\n\r\n"

static void test_tls(void **state) {
  int port;
  (void)state;
  pid_t pid = serve_page(&port);
  open_tls(port, "localhost", certificate);
  int c = dial_proxy();
  for (int i = 0; i < 2; i++) {
    say(c, GET);
    hear(c, "\r\n\r\nsecret");
    assert_begins(heard, "HTTP/1.1 200 OK\r\n");
  }
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 2);
  close(c);
  close_all();
  stop(pid);
}

/* Whoever cannot prove to be the upstream is sent nothing. */
static void test_untrusted(void **state) {
  int port;
  (void)state;
  pid_t pid = serve_page(&port);
  open_tls(port, "localhost", NULL);
  int c = dial_proxy();
  say(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 ");
  assert_holds(heard, "certificate");
  assert_int_equal(guard.outcomes[NEAP_FAILURE], 1);
  assert_int_equal(guard.last.phase, NEAP_PHASE_CONNECT); /* B232: nothing was sent */
  close(c);
  close_all();
  open_tls(port, "127.0.0.2", certificate); /* good for another name */
  c = dial_proxy();
  say(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 ");
  close(c);
  close_all();
  stop(pid);
}

/* B232: a handshake that fails is a failure before anything was sent. */
static void test_no_tls_there(void **state) {
  (void)state;
  upstream = listen_at("127.0.0.1", 0);
  open_tls(port_of(upstream), "127.0.0.1", certificate);
  int c = dial_proxy();
  say(c, GET);
  int u = answer_call(upstream);
  say(u, "HTTP/1.1 400 Bad Request\r\n\r\n");
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 ");
  assert_int_equal(guard.last.phase, NEAP_PHASE_CONNECT);
  close(c), close(u);
  close_all();
}

#define IT(title, function)                                                                        \
  { title, function, loop_open, loop_close, NULL }

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("speaks TLS to the upstream", test_tls),
      IT("sends nothing to one whose certificate is not its own", test_untrusted),
      IT("counts a failed handshake as no connection (B232)", test_no_tls_there),
  };
  return cmocka_run_group_tests(tests, certificate_make, certificate_remove);
}
