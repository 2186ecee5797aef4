#!/bin/sh
# Asks in the form of Anthropic's Messages.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

answer=$(curl -sS -m 300 "$url/v1/messages" \
  -H "x-api-key: $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"kimi-k3","max_tokens":4096,"system":"You answer in one sentence.",
       "messages":[{"role":"user","content":"What is the tallest mountain?"}]}')
printf '%s\n' "$answer"

printf '%s\n' "$answer" | grep -q '"type":"message","role":"assistant","model":"kimi-k3"'
printf '%s\n' "$answer" | grep -q '"stop_reason":"end_turn","stop_sequence":null'
printf '%s\n' "$answer" | grep -q '"output_tokens":[1-9]'
# Thoughts come in streams only.
if printf '%s\n' "$answer" | grep -q '"type":"thinking"'; then exit 1; fi
