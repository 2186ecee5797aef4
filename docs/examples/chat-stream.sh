#!/bin/sh
# Asks for the answer piece by piece, and for its usage at the end.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

answer=$(curl -sSN -m 300 "$url/v1/chat/completions" \
  -H "Authorization: Bearer $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"glm-5.2","stream":true,"stream_options":{"include_usage":true},
       "messages":[{"role":"user","content":"hello"}]}')
printf '%s\n' "$answer"

printf '%s\n' "$answer" | grep -q '"finish_reason":"stop"'
printf '%s\n' "$answer" | grep -q '"choices":\[\],"usage":{"prompt_tokens":[1-9]'
printf '%s\n' "$answer" | tail -n 2 | grep -qx 'data: \[DONE\]'
