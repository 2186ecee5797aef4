#!/bin/sh
# Writes a vendor before the model, for clients that insist on one.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

answer=$(curl -sS -m 300 "$url/v1/chat/completions" \
  -H "Authorization: Bearer $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"engy/glm-5.2","messages":[{"role":"user","content":"hello"}]}')
printf '%s\n' "$answer"

# The answer repeats the spelling.
printf '%s\n' "$answer" | grep -q '"model":"engy/glm-5.2".*"finish_reason":"stop"'
