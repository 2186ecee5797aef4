#!/bin/sh
# Asks in the form of OpenAI Responses.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

answer=$(curl -sS -m 300 "$url/v1/responses" \
  -H "Authorization: Bearer $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"glm-5.2","instructions":"You are brief.","input":"hello"}')
printf '%s\n' "$answer"

printf '%s\n' "$answer" | grep -q '"object":"response"'
printf '%s\n' "$answer" | grep -q '"status":"completed"'
printf '%s\n' "$answer" | grep -q '"type":"output_text"'
