#!/bin/sh
# Counts the tokens of a message. No key is needed.
set -eu
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

answer=$(curl -sS -m 60 "$url/v1/messages/count_tokens" \
  -H 'Content-Type: application/json' \
  -d '{"model":"kimi-k3","messages":[{"role":"user","content":"What is the tallest mountain?"}]}')
printf '%s\n' "$answer"

printf '%s\n' "$answer" | grep -qE '^\{"input_tokens":[1-9][0-9]*\}$'
