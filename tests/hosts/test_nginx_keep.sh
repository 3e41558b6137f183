# Which answers neap keeps in nginx: none that is one client's, however the upstream says so and
# whatever nginx hides of it, none of another server block, none to a question that is in a body, nor
# one that its client wants kept nowhere.  And what it sends: every header of a fallback's answer.
. "$(dirname "$0")/nginx_support.sh"

# shellcheck disable=SC2034  # so that the worker that answers is the one that has kept
processes=1
policy kept "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 },
  fallback = { fallback.last_good { max_age_ms = 60000 }, fallback.fail { status = 504 } },"
policy listed "trip = { failures = 100 }, fallback = {
  fallback.default { headers = { 'Link', '</a>', 'X-One', '1', 'link', '</b>' }, body = 'listed' } },"
chmod -R a+rX "$dir/policies"
guarded="
  access_by_lua_block { guards.kept:access() }
  body_filter_by_lua_block { guards.kept:keep() }
  proxy_pass http://127.0.0.1:$nobody_port;
  proxy_intercept_errors on;
  error_page 500 = @kept;"
nginx_serve site "
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { policies = '$dir/policies' }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  server {
    listen 127.0.0.1:$nobody_port reuseport;
    location / {
      content_by_lua_block {
        if io.open('$dir/down') then return ngx.exit(500) end
        local how, header = ngx.var.arg_how, ngx.header
        if how == 'cookie' then header['Set-Cookie'] = 'id=alice'
        elseif how == 'private' then header['Cache-Control'] = 'Private'
        elseif how == 'lines' then header['Cache-Control'] = { 'max-age=5', 'private' }
        elseif how == 'varies' then header['Vary'] = { 'Accept', 'X-Client' }
        elseif how == 'many' then
          for i = 1, 110 do header['A' .. i] = '1' end
          header['Cache-Control'] = 'private'
        end
        ngx.say('of alice')
      }
    }
  }
  server {
    listen 127.0.0.1:$port reuseport;
    proxy_buffer_size 64k;
    proxy_buffers 8 64k;
    proxy_busy_buffers_size 128k;
    location / { $guarded }
    location /hidden/ {
      $guarded
      proxy_hide_header Cache-Control;
      proxy_hide_header Set-Cookie;
      proxy_hide_header Vary;
    }
    location = /listed {
      proxy_pass http://127.0.0.1:$nobody_port;
      proxy_intercept_errors on;
      error_page 500 = @listed;
    }
    location /of/eu/ {
      access_by_lua_block { guards.kept:access('eu') }
      body_filter_by_lua_block { guards.kept:keep('eu') }
      proxy_pass http://127.0.0.1:$nobody_port;
      proxy_intercept_errors on;
      error_page 500 = @kept_of_eu;
    }
    location @kept_of_eu { content_by_lua_block { guards.kept:answer('eu') } }
    location @listed { content_by_lua_block { guards.listed:answer() } }
    location @kept { content_by_lua_block { guards.kept:answer() } }
  }
  server {
    listen 127.0.0.1:$second_port;
    listen 127.0.0.2:$port;
    server_name kept.example;
    location / { $guarded }
    location @kept { content_by_lua_block { guards.kept:answer() } }
  }"
ones="/?how=cookie /?how=private /?how=lines /?how=varies /?how=many /hidden/?how=cookie /hidden/?how=private"
named="-H Host:kept.example"
chunked="-X GET -d q=3 -H Transfer-Encoding:chunked"
for path in $ones / /hidden/ /of/eu/ "/ $named" "/secret -H Cache-Control:max-age=0,No-Store" \
  "/search -X GET -d q=1" "/chunked $chunked" /index "/kept -H Content-Length:0"; do
  # shellcheck disable=SC2086  # a path and curl's options
  gets 200 $path
done
touch "$dir/down"
chmod a+r "$dir/down"
for path in / /hidden/; do gets 200 "$path"; done
gets 200 /of/eu/ # the call has failed, and the answer of its key stands in
gets 200 /kept
for path in $ones /secret /search /chunked; do gets 504 "$path"; done
# shellcheck disable=SC2086  # curl's options
for asked in "/search -X GET -d q=2" "/index -X GET -d q=2" "/index $chunked"; do gets 504 $asked; done
gets 200 /index
# shellcheck disable=SC2086  # curl's options
for site in http://127.0.0.1:$port http://127.0.0.1:$second_port http://127.0.0.2:$port; do
  case $site in http://127.0.0.1:$port) of_site=200 ;; *) of_site=504 ;; esac # another server block
  gets $of_site / $named
done
site=http://127.0.0.1:$port
gets 200 /listed
for line in 'Link: </a>' 'link: </b>' 'X-One: 1'; do header "$line"; done
nginx_stop
