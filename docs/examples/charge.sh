#!/bin/sh
# Shows the id of a request, and what it cost in millionths of a dollar.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

head=$(curl -sS -m 300 -o /dev/null -D - "$url/v1/chat/completions" \
  -H "Authorization: Bearer $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"glm-5.2","messages":[{"role":"user","content":"hello"}]}' | tr -d '\r')
printf '%s\n' "$head" | grep -i '^x-engy-'

printf '%s\n' "$head" | grep -qiE '^x-engy-request-id: [0-9a-f]{64}$'
printf '%s\n' "$head" | grep -qiE '^x-engy-charged-micro: [0-9]+$'
