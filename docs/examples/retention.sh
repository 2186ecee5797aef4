#!/bin/sh
# Says for one request whether it may be kept. Without a word, nothing is.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

ask() {
  answer=$(curl -sS -m 300 -w ' %{http_code}' "$url$1" \
    -H "Authorization: Bearer $ENGY_API_KEY" \
    -H 'Content-Type: application/json' -d "$2")
  printf '%s\n' "$answer"
}

# What is kept is filed under x_engy.request_id.
ask /v1/chat/completions '{"model":"kimi-k3","provider":{"data_collection":"allow"},
  "messages":[{"role":"user","content":"hello, keep this"}]}'
printf '%s\n' "$answer" | grep -qE '"x_engy":\{"request_id":"[0-9a-f]{64}".* 200$'
# This one is not kept, whatever the account says.
ask /v1/chat/completions '{"model":"kimi-k3","provider":{"data_collection":"deny"},
  "messages":[{"role":"user","content":"hello, forget this"}]}'
printf '%s\n' "$answer" | grep -q '"finish_reason":"stop".* 200$'
# A slip of the pen is neither yes nor no, on every route.
for path in chat/completions messages; do
  ask /v1/$path '{"model":"kimi-k3","max_tokens":99,"provider":{"data_collection":"alow"},
    "messages":[{"role":"user","content":"hello"}]}'
  printf '%s\n' "$answer" | grep -q 'data_collection.* 400$'
done
