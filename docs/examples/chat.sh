#!/bin/sh
# Asks in the form of OpenAI Chat Completions.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

answer=$(curl -sS -m 300 "$url/v1/chat/completions" \
  -H "Authorization: Bearer $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"glm-5.2","messages":[{"role":"user","content":"hello"}]}')
printf '%s\n' "$answer"

printf '%s\n' "$answer" | grep -q '"object":"chat.completion".*"finish_reason":"stop"'
