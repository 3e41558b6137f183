# HTTP/2 by TLS to the upstream, which is nginx: what is asked and answered, on one connection; that
# it goes away and comes back; that it isn't who it says.
. "$(dirname "$0")/support.sh"

neap=${NEAP_BIN:?}
equal() { [ "$2" = "$3" ] || fail "$1: expected $2, got $3"; }

# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 3)
up=$1 listen=$2 other=$3

# ---- An authority, and a certificate by it ----

quietly() { "$@" >"$dir/openssl.log" 2>&1; }
cd "$dir"
quietly openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=neap test authority" \
  -keyout authority.key -out authority.pem
quietly openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" -keyout key.pem -out request.pem
printf 'subjectAltName=DNS:localhost\n' >names
quietly openssl x509 -req -in request.pem -days 2 -extfile names \
  -CA authority.pem -CAkey authority.key -CAcreateserial -out cert.pem
cd - >/dev/null

# ---- The upstream ----

mkdir "$dir/files" "$dir/temporary"
head -c 1048576 /dev/urandom >"$dir/files/large"
head -c 120000 /dev/urandom >"$dir/files/slow"
echo hello >"$dir/files/hello"
cat >"$dir/nginx.conf" <<END
daemon off;
master_process off;
pid $dir/nginx.pid;
error_log $dir/nginx-error.log;
events {}
http {
  access_log off;
  default_type text/plain;
  client_body_temp_path $dir/temporary;
  proxy_temp_path $dir/temporary;
  fastcgi_temp_path $dir/temporary;
  uwsgi_temp_path $dir/temporary;
  scgi_temp_path $dir/temporary;
  server {
    listen 127.0.0.1:$up ssl http2;
    ssl_certificate $dir/cert.pem;
    ssl_certificate_key $dir/key.pem;
    root $dir/files;
    add_header X-Connection \$connection always;
    add_header X-Protocol \$server_protocol always;
    client_max_body_size 2m;
    location = /who { return 200 "\$server_protocol \$request_method \$host\n"; }
    location = /slow { limit_rate 80000; }
    location = /trailers { try_files /hello =404; add_trailer X-Sum 42; }
    location = /none { return 204; }
    location = /busy { return 503 "busy\n"; }
    location = /limited { client_max_body_size 1k; proxy_pass http://127.0.0.1:1; }
    location /kept/ { dav_methods PUT; create_full_put_path on; }
  }
}
END
upstream_is_up() { curl -s -o "$dir/up" --cacert "$dir/authority.pem" "https://localhost:$up/who"; }
upstream_start() {
  nginx -c "$dir/nginx.conf" -e "$dir/nginx-error.log" >"$dir/nginx.log" 2>&1 &
  nginx=$!
  pids="$pids $nginx"
  within 10 upstream_is_up
}
upstream_kill() {
  kill -9 "$nginx"
  wait "$nginx" 2>/dev/null || :
}
upstream_start

# ---- neap in front of it ----

cat >"$dir/policy.lua" <<'END'
return {
  name = "policy",
  window = { kind = "time", length_ms = 10000 },
  trip = { consecutive_failures = 1000 },
  timeout_ms = 5000,
  fallback = { fallback.last_good { max_age_ms = 60000 } },
}
END
route() { # NAME LISTEN FIELDS: a configuration with that route
  cat >"$dir/$1.lua" <<END
return {
  listen = "127.0.0.1:$2", admin = "off", policies = { "$dir/policy.lua" },
  routes = { { name = "$1", upstream = "https://localhost:$up", policy = "policy", $3 } },
}
END
  "$neap" serve "$dir/$1.lua" 2>"$dir/$1.log" &
  pids="$pids $!"
  within 10 grep -q "serving on" "$dir/$1.log"
}
route trusting "$listen" "ca_file = \"$dir/authority.pem\""
route distrusting "$other" ""

ask() { # STATUS URL-PATH CURL-ARGUMENTS...: head and body in $dir
  expected=$1 path=$2
  shift 2
  : >"$dir/body"
  got=$(curl -s --max-time 20 -D "$dir/head" -o "$dir/body" -w '%{http_code}' "$@" \
    "http://127.0.0.1:$listen$path") || fail "$path: curl says $?"
  equal "$path" "$expected" "$got"
}
field() { tr -d '\r' <"$dir/head" | sed -n "s/^$1: //Ip"; }
same_body() { cmp "$1" "$dir/body" || fail "$2: another body"; }

# ---- One connection ----

# Each takes a second and more; five at once, on a connection that is still to be made, share it.
begin=$(date +%s)
for i in 1 2 3 4 5; do
  curl -s --max-time 20 -D "$dir/head$i" -o "$dir/slow$i" "http://127.0.0.1:$listen/slow" &
  eval "client$i=$!"
done
for i in 1 2 3 4 5; do
  eval "wait \$client$i" || fail "request $i: curl says $?"
  cmp "$dir/files/slow" "$dir/slow$i"
done
took=$(($(date +%s) - begin))
[ "$took" -le 4 ] || fail "one after the other: five requests of a second took $took s"
equal "connections" 1 "$(cat "$dir"/head[1-5] | grep -i '^x-connection:' | sort -u | wc -l)"
equal "protocols" 5 "$(cat "$dir"/head[1-5] | grep -ci '^x-protocol: HTTP/2.0')"
connection=$(tr -d '\r' <"$dir/head1" | sed -n 's/^x-connection: //Ip')
echo "ok: five requests at once on one connection"

# ---- What goes through ----

ask 200 /who -H "Host: example.org"
equal "/who" "HTTP/2.0 GET example.org" "$(cat "$dir/body")"
equal "Neap-Source" primary "$(field neap-source)"
equal "version to the client" "HTTP/1.1 200 OK" "$(head -1 "$dir/head" | tr -d '\r')"
ask 200 /large
same_body "$dir/files/large" "1 MB down"
equal "Content-Length" 1048576 "$(field content-length)"
ask 201 /kept/length -T "$dir/files/large"
cmp "$dir/files/large" "$dir/files/kept/length" || fail "1 MB up, by length: another body"
ask 201 /kept/chunked -T "$dir/files/large" -H "Transfer-Encoding: chunked"
cmp "$dir/files/large" "$dir/files/kept/chunked" || fail "1 MB up, chunked: another body"
ask 200 /large -I
equal "HEAD: Content-Length" 1048576 "$(field content-length)"
ask 200 /hello
same_body "$dir/files/hello" "/hello"
tag=$(field etag)
ask 304 /hello -H "If-None-Match: $tag"
[ ! -s "$dir/body" ] || fail "304 with a body"
equal "304: ETag" "$tag" "$(field etag)"
ask 204 /none
ask 404 /nothing
ask 503 /busy
equal "/busy" busy "$(cat "$dir/body")"
ask 200 /trailers # which end with this connection, if curl tells of them at all
same_body "$dir/files/hello" "trailers"
equal "a trailer" "" "$(field x-sum)"
ask 413 /limited -T "$dir/files/large" -H "Expect:"
ask 200 /who
equal "after an early answer" HTTP/2.0 "$(field x-protocol)"
equal "the connection after all that" "$connection" "$(field x-connection)"
echo "ok: bodies of 1 MB both ways, HEAD, 304, 204, trailers, an early answer; still one connection"

# ---- Gone, and back ----

upstream_kill
ask 200 /hello
equal "Neap-Source" last_good "$(field neap-source)"
same_body "$dir/files/hello" "the last good answer"
ask 502 /never-asked
upstream_start
ask 200 /who
equal "back" HTTP/2.0 "$(field x-protocol)"
equal "Neap-Source" primary "$(field neap-source)"
# Killed in the middle of answers: each is seen to be cut off, and the next request finds a new
# connection.
rm "$dir"/slow*
for i in 1 2 3; do
  curl -sN --max-time 20 -o "$dir/slow$i" "http://127.0.0.1:$listen/slow" &
  eval "client$i=$!"
done
for i in 1 2 3; do within 5 test -s "$dir/slow$i"; done
upstream_kill
for i in 1 2 3; do
  if eval "wait \$client$i"; then fail "request $i: half a body, and all seemed well"; fi
done
upstream_start
ask 200 /who
equal "back again" HTTP/2.0 "$(field x-protocol)"
echo "ok: gone, it is answered for; back, it is asked again"

# ---- Not trusted ----

listen=$other
ask 502 /who
equal "lines" 1 "$(wc -l <"$dir/body")"
grep -q '"detail":"[^"]*certificate' "$dir/body" || fail "what is wrong: $(cat "$dir/body")"
echo "ok: an upstream that can't prove who it is gets nothing: 502, and why"
