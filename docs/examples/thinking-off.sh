#!/bin/sh
# Turns thinking off, in each of the ways there are.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

ask() {
  answer=$(curl -sS -m 300 "$url/v1/chat/completions" \
    -H "Authorization: Bearer $ENGY_API_KEY" \
    -H 'Content-Type: application/json' \
    -d '{"model":"'"$1"'",'"$2"',"messages":[{"role":"user","content":"Is 91 prime?"}]}')
  printf '%s\n' "$answer"
  printf '%s\n' "$answer" | grep -q '"finish_reason":"stop"'
  if printf '%s\n' "$answer" | grep -q '"reasoning_content":"'; then exit 1; fi
}

for model in glm-5.2 kimi-k3; do
  ask $model '"reasoning_effort":"none"'
  ask $model '"reasoning_effort":"minimal"'
  ask $model '"reasoning":{"enabled":false}'
  # The switch of the model's own template; kimi-k3 calls it thinking and takes
  # this name, too.
  ask $model '"chat_template_kwargs":{"enable_thinking":false}'
done
