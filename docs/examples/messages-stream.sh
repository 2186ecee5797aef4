#!/bin/sh
# Streams a message, once with thoughts and once without.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

ask() {
  answer=$(curl -sSN -m 300 "$url/v1/messages" \
    -H "x-api-key: $ENGY_API_KEY" \
    -H 'Content-Type: application/json' \
    -d '{"model":"kimi-k3","max_tokens":16384,"stream":true,"thinking":{"type":"'"$1"'"},
         "messages":[{"role":"user","content":"How many primes are below 30?"}]}')
  printf '%s\n' "$answer" | grep -q '^event: message_stop$'
  printf '%s\n' "$answer" | grep -q '"stop_reason":"end_turn"'
}

ask enabled
printf '%s\n' "$answer"
printf '%s\n' "$answer" | grep -q '"type":"thinking_delta"'
ask disabled
printf '%s\n' "$answer"
if printf '%s\n' "$answer" | grep -q '"thinking'; then exit 1; fi
