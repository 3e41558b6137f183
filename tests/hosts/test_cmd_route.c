/* Which requests are a route's: neap serve's own matching, case by case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lua/engine/cmd/route.c"

/* In the order of trying: the more particular first. */
static plan_route routes[] = {
    {.name = "deep", .host = "pay.internal", .prefix = "/v1/deep/"},
    {.name = "pay", .host = "pay.internal", .prefix = "/"},
    {.name = "six", .host = "[::1]", .prefix = "/"},
    {.name = "flags", .prefix = "/flags"},
};

static const struct {
  const char *host, *target, *route; /* NULL: none */
} cases[] = {
    /* hosts: no regard to case, port or a dot for the root */
    {"pay.internal", "/", "pay"},
    {"PAY.Internal:8080", "/x", "pay"},
    {"pay.internal.", "/", "pay"},
    {"pay.internal.:80", "/", "pay"},
    {"xpay.internal", "/", NULL},
    {"pay.internal.example", "/", NULL},
    {"pay.interna", "/", NULL},
    {"[::1]:80", "/", "six"},
    {"[::1]", "/", "six"},
    {"", "/", NULL},
    {":80", "/", NULL},
    /* prefixes: whole segments */
    {"any", "/flags", "flags"},
    {"any", "/flags/", "flags"},
    {"any", "/flags/x?y", "flags"},
    {"any", "/flags?x", "flags"},
    {"any", "/flags#x", "flags"},
    {"any", "/flagship", NULL},
    {"any", "/flag", NULL},
    {"any", "/Flags", NULL},
    {"any", "/", NULL},
    {"any", "*", NULL},
    {"", "/flags", "flags"},
    /* a prefix that ends with a slash */
    {"pay.internal", "/v1/deep/x", "deep"},
    {"pay.internal", "/v1/deep/", "deep"},
    {"pay.internal", "/v1/deep", "pay"},
    /* "/" is for everything, for "*" too */
    {"pay.internal", "*", "pay"},
    {"pay.internal", "?x", "pay"},
};

static http_slice slice(const char *text) { return (http_slice){text, strlen(text)}; }

static void finds_the_route_by_host_and_prefix(void **state) {
  (void)state;
  const plan p = {.routes = routes, .route_count = sizeof routes / sizeof *routes};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int found = route_find(&p, slice(cases[i].host), slice(cases[i].target));
    const char *name = found < 0 ? NULL : routes[found].name;
    if (cases[i].route == NULL ? name != NULL : !name || strcmp(name, cases[i].route) != 0)
      fail_msg("%s%s took the route %s, not %s", cases[i].host, cases[i].target,
               name ? name : "none", cases[i].route ? cases[i].route : "none");
  }
}

/* A target is no text of C's: it has no end but its length. */
static void looks_no_further_than_the_target(void **state) {
  (void)state;
  const plan p = {.routes = routes + 3, .route_count = 1};
  assert_int_equal(route_find(&p, slice("any"), (http_slice){"/flags/x", 6}), 0);
  assert_int_equal(route_find(&p, slice("any"), (http_slice){"/flags", 5}), -1);
  assert_int_equal(route_find(&p, slice("any"), (http_slice){"/flagsZ", 6}), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(finds_the_route_by_host_and_prefix),
      cmocka_unit_test(looks_no_further_than_the_target),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
