#!/bin/sh
# Says how long a model should think, in either of two forms.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

ask() {
  answer=$(curl -sS -m 600 "$url/v1/chat/completions" \
    -H "Authorization: Bearer $ENGY_API_KEY" \
    -H 'Content-Type: application/json' \
    -d '{"model":"glm-5.2",'"$1"',"messages":[{"role":"user","content":"Is 91 prime?"}]}')
  printf '%s\n' "$answer"
  printf '%s\n' "$answer" | grep -q '"reasoning_content":"[^"]'
  printf '%s\n' "$answer" | grep -q '"finish_reason":"stop"'
}

ask '"reasoning_effort":"high"'
ask '"reasoning":{"effort":"high"}'
# How a tier is written, small or large, does not matter.
ask '"reasoning_effort":"LOW"'
